"""Settings of Caddy and of nginx, which hold the Hub's certificate and speak HTTPS with browsers.

Reference: https://caddyserver.com/docs/caddyfile, https://nginx.org/en/docs/http/websocket.html, RFC 6797 (HSTS).
"""

from __future__ import annotations

from mlsys_grading.hub.settings import HubTable

_BODY_MB = 100  # a notebook with its outputs
# X-Scheme and X-Real-IP reach the Hub as they are: its own proxy appends "http" and its own address to the headers of
# the X-Forwarded family, and the Hub would take the connection for HTTP and send its cookies without "Secure".

_CADDYFILE = """\
{{
	admin off
}}

{host} {{
	header {{
		Strict-Transport-Security "max-age=31536000"
		X-Content-Type-Options nosniff
		-Server
		defer
	}}
	request_body {{
		max_size {body}MB
	}}
	reverse_proxy unix/{socket} {{
		header_up X-Scheme https
		header_up X-Real-IP {{remote_host}}
	}}
}}
"""

_NGINX = """\
map $http_upgrade ${variable} {{
    default upgrade;
    "" close;
}}

server {{
    listen 80;
    listen [::]:80;
    server_name {host};
    return 301 https://$host$request_uri;
}}

server {{
    listen 443 ssl http2;
    listen [::]:443 ssl http2;
    server_name {host};
    ssl_certificate /etc/letsencrypt/live/{host}/fullchain.pem;
    ssl_certificate_key /etc/letsencrypt/live/{host}/privkey.pem;
    ssl_protocols TLSv1.2 TLSv1.3;
    server_tokens off;
    client_max_body_size {body}m;
    proxy_hide_header X-Content-Type-Options;
    add_header Strict-Transport-Security "max-age=31536000" always;
    add_header X-Content-Type-Options nosniff always;
    location / {{
        proxy_pass http://unix:{socket};
        proxy_http_version 1.1;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection ${variable};
        proxy_set_header Host $host;
        proxy_set_header X-Forwarded-For $remote_addr;
        proxy_set_header X-Forwarded-Proto $scheme;
        proxy_set_header X-Real-IP $remote_addr;
        proxy_set_header X-Scheme $scheme;
        proxy_buffering off;
        proxy_read_timeout 1d;
    }}
}}
"""


def caddyfile(hub: HubTable) -> str:
    """Return a Caddyfile before ``hub.socket``: Caddy itself asks for the certificate of ``hub.host`` and renews it."""
    return _CADDYFILE.format(host=hub.host, body=_BODY_MB, socket=hub.socket)


def nginx_file(name: str, hub: HubTable) -> str:
    """Return a file for ``/etc/nginx/conf.d``, with the certificate that certbot keeps for ``hub.host``."""
    variable = f"{name.replace('-', '_').replace('.', '_')}_connection"
    return _NGINX.format(host=hub.host, body=_BODY_MB, socket=hub.socket, variable=variable)
