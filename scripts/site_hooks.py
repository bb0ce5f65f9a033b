"""Adds pages and examples of the project's folder to the site that mkdocs makes of docs/."""

import glob

from mkdocs.structure.files import File

PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")


def on_files(files, config):
    for path in [*PAGES, *sorted(glob.glob("examples/*.py"))]:
        files.append(File.generated(config, path, abs_src_path=path))
    return files


def on_page_markdown(markdown, page, config, files):
    """Corrects links between docs/ and the project's folder, which are one folder in the site."""
    if page.file.src_uri in PAGES:
        return markdown.replace("](docs/", "](")
    for name in (*PAGES, "examples/"):
        markdown = markdown.replace("](../" + name, "](" + name)
    return markdown
