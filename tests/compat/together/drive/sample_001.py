"""The create page's own sample (seed 001), with its misspelt `billint_type` corrected."""

from together import Together

client = Together()

response = client.beta.clusters.create(
    cluster_name="my-gpu-cluster",
    region="us-central-8",
    gpu_type="H100_SXM",
    num_gpus=8,
    driver_version="CUDA_12_6_560",
    billing_type="ON_DEMAND",
)

print(response.cluster_id)
