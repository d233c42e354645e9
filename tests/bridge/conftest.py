from tests.slurm.conftest import slurm

__all__ = ["slurm"]
