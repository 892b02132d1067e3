"""Matrix products on Hopper's tensor cores with fused epilogues."""
