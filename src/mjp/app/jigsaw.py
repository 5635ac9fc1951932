"""The picture under a plan, as the page shows it."""

from PIL import Image, ImageDraw

from mjp.method.plan import Plan
from mjp.method.shuffle import shuffle_image
from mjp.pictures.tensors import to_image, to_tensor

SIDE = 448  # pixels, about: a whole number for every patch
FRAME = (224, 122, 31)


def draw_jigsaw(square: Image.Image, plan: Plan) -> Image.Image:
    """The square with its patches where the first jigsaw of the plan puts them, and a frame around masked cells."""
    rows, columns = plan.grid
    patch = max(1, round(SIDE / rows))
    side = (columns * patch, rows * patch)
    picture = to_tensor(square.resize(side, Image.Resampling.BICUBIC)).unsqueeze(0)
    first = plan._replace(mask=plan.mask[:1], permutation=plan.permutation[:1], inverse=plan.inverse[:1])
    shuffled = to_image(shuffle_image(picture, first, patch)[0])
    draw = ImageDraw.Draw(shuffled)
    for cell in plan.mask[0].nonzero().flatten().tolist():
        x, y = patch * (cell % columns), patch * (cell // columns)
        draw.rectangle((x, y, x + patch - 1, y + patch - 1), outline=FRAME, width=2)
    return shuffled
