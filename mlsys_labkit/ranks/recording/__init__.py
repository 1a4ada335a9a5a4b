"""The record that each rank keeps of its calls of torch.distributed."""
