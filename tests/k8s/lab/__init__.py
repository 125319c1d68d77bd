"""A Kubernetes cluster on this machine: a real control plane, and a stand-in for the kubelet."""
