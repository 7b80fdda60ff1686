#!/bin/bash
# Shards as one job of Slurm, a task a GPU; docs/clusters.md says what it needs.
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 --gpu-bind=none --cpus-per-task=8 --time=08:00:00
tls="--tls-ca-file $HOME/tls/ca.pem --tls-cert $HOME/tls/cert.pem --tls-key $HOME/tls/key.pem"
scheduler=tls://$(hostname --fqdn):8786
dask scheduler --protocol tls --port 8786 --no-dashboard $tls &
srun bash -c "while true; do CUDA_VISIBLE_DEVICES=\$SLURM_LOCALID dask worker $scheduler \
  --nthreads 1 --memory-limit 0 --no-dashboard $tls; sleep 1; done" &
export LIVERANK_CLUSTER_CA=$HOME/tls/ca.pem LIVERANK_CLUSTER_CERT=$HOME/tls/cert.pem LIVERANK_CLUSTER_KEY=$HOME/tls/key.pem
liverank serve --data /shared/liverank --shards $SLURM_NTASKS --backend cuda --cluster $scheduler
