"""Jobs: accepted, uploaded, run under the cluster's scheduler, brought home."""
