"""Attributes of a local cluster with which tests of the second generation start additional workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaler.compat.earlier_settings import NativeWorkerManager
    from scaler.compat.names import AddressConfig


class EarlierHooks:
    """Base of `SchedulerClusterCombo`."""

    _n_workers: int

    def get_address(self) -> str:
        raise NotImplementedError

    @property
    def _address(self) -> AddressConfig:
        from scaler.compat.names import AddressConfig

        return AddressConfig.from_string(self.get_address())

    @property
    def _object_storage_address(self) -> AddressConfig:
        return self._address

    @property
    def _worker_manager(self) -> NativeWorkerManager:
        """A worker manager whose configuration can be copied for more workers; it runs none itself."""
        from scaler.compat.earlier_settings import NativeWorkerManager, NativeWorkerManagerConfig, WorkerManagerConfig

        manager = WorkerManagerConfig(self._address, "combo", max_task_concurrency=self._n_workers)
        return NativeWorkerManager(NativeWorkerManagerConfig(manager))
