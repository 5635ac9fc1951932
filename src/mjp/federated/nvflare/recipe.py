"""FedAvg that goes on when a site fails or withholds its update."""

from typing import Any

from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe


class TolerantFedAvgRecipe(FedAvgRecipe):
    """NVFlare's FedAvg recipe for PyTorch, with a controller that leaves results with an error out of the average.

    As it comes, the recipe asks `min_clients` sites and ends the job as soon as one of them reports an error.
    """

    def _get_controller_kwargs(self) -> dict[str, Any]:
        return {**super()._get_controller_kwargs(), "ignore_result_error": True}
