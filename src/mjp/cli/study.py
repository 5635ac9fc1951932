"""What position embeddings have learned, and where the class token looks.

Least squares from embedding to position (1-D and 2-D, cross-validated), principal components, UMAP (if umap-learn is
installed), cosine similarities, spectrum, the positions that the DAL head reads, and attention maps of the last block.

Example: mjp study mini-cifar10-plain mini-cifar10-mjp --pictures dog.jpg
"""

from mjp.common.results import Results
from mjp.evaluation.config import StudyConfig as Options


def run(options: Options) -> Results:
    from mjp.evaluation.study import study

    return study(options)
