"""Makes pages of a site out of files that are read in the repository, too.

The site makes no request to other hosts.
"""

import os
import pathlib
import posixpath
import re

from mkdocs.structure.files import File

# The file that draws the diagrams. Without it, the theme would load it from another host.
MERMAID = "assets/mermaid.min.js"
BADGE = re.compile(r"^\[!\[.*\]\(https:.*\n", re.MULTILINE)
LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)")


def on_files(files, config):
    """The README is the first page, without its badges, which come from another host."""
    readme = pathlib.Path(config.config_file_path).parent / "README.md"
    text = BADGE.sub("", readme.read_text("utf-8"))
    text = re.sub(r"(\]\()docs/", r"\1", text)
    files.append(File.generated(config, "index.md", content=text))
    files.append(File.generated(config, MERMAID, abs_src_path=os.environ["MERMAID"]))
    return files


def on_post_page(output, page, config):
    """Diagrams are drawn by the site's own copy; nobody asks GitHub for stars."""
    output = output.replace('data-md-component="source"', "")
    if 'class="mermaid"' in output:
        depth = "../" * page.url.count("/")
        theme = f'<script src="{depth}assets/javascripts/bundle'
        output = output.replace(theme, f'<script src="{depth}{MERMAID}"></script>{theme}')
    return output


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
