"""The gateway: answers clients over HTTP, and asks a party for them over gRPC; it holds no data."""
