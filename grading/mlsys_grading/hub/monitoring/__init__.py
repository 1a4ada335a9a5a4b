"""Metrics of a Hub for Prometheus, with a dashboard for Grafana and alert rules beside them."""
