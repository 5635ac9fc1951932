"""Search a folder of pictures with words: python examples/search_folder.py FOLDER "a dog on a beach"

Needs the extra mjp[aladin]. The index is kept in FOLDER.index and brought up to date on every call.
"""

import sys
from pathlib import Path

from mjp.aladin import Match, index_pictures, open_index


def main(folder: str, query: str, k: int = 5) -> list[Match]:
    index = Path(folder).with_suffix(".index")
    index_pictures(folder, index)
    search = open_index(index)
    matches = search.search(query, k=k)
    for match in matches:
        print(f"{match.cosine:.3f}  {match.paths[0]}")
    for word in search.explain(query, matches[0].id) or []:
        print(f"  {word.text}: {word.score:.2f}")
    return matches


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
