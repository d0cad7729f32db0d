"""Makes pages of a site out of files that are read in the repository, too."""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)")


def on_files(files, config):
    """The README is the first page."""
    readme = pathlib.Path(config.config_file_path).parent / "README.md"
    text = re.sub(r"(\]\()docs/", r"\1", readme.read_text("utf-8"))
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links to files that are no pages lead to the repository."""

    def lead(link):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), link[2]))
        if files.get_file_from_path(target):
            return link[0]
        root = pathlib.Path(config.config_file_path).parent
        inside = target.removeprefix("../")
        if not (root / inside).exists():
            return link[0]  # mkdocs names the page and the link
        kind = "tree" if (root / inside).is_dir() else "blob"
        return f"{link[1]}{config.repo_url}/{kind}/main/{inside}"

    return LINK.sub(lead, markdown)
