"""FedAvg that goes on when a site fails, withholds its update or does not answer."""

from typing import Any

from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe


class TimedFedAvg(FedAvg):
    """NVFlare's FedAvg, which waits for its clients for ever, with an end to a round.

    Args:
        task_timeout: Seconds that a round waits for its clients; 0 waits for ever.
    """

    def __init__(self, *args: Any, task_timeout: int = 600, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.task_timeout = task_timeout

    def send_model(self, *args: Any, **kwargs: Any) -> None:
        super().send_model(*args, **{**kwargs, "timeout": self.task_timeout})


class TolerantFedAvgRecipe(FedAvgRecipe):
    """NVFlare's FedAvg recipe for PyTorch, with a controller that leaves results with an error out of the average.

    As it comes, the recipe asks `min_clients` sites, ends the job as soon as one of them reports an error, and waits
    for ever for one that does not answer.

    Args:
        task_timeout: Seconds that a round waits for its clients.
        options: Those of FedAvgRecipe.
    """

    def __init__(self, *, task_timeout: int = 600, **options: Any) -> None:
        self.task_timeout = task_timeout
        super().__init__(**options)

    def _create_controller(self, persistor_id: str, model_params: Any, model_aggregator: Any) -> FedAvg:
        return TimedFedAvg(
            task_timeout=self.task_timeout,
            ignore_result_error=True,
            num_clients=self.min_clients,
            num_rounds=self.num_rounds,
            persistor_id=persistor_id,
            model=model_params,
            save_filename=self.save_filename,
            aggregator=model_aggregator,
            stop_cond=self.stop_cond,
            patience=self.patience,
            exclude_vars=self.exclude_vars,
            aggregation_weights=self.aggregation_weights,
            memory_gc_rounds=self.server_memory_gc_rounds,
            enable_tensor_disk_offload=self.enable_tensor_disk_offload,
            **self._get_controller_kwargs(),
        )
