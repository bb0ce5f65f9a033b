"""Adds the pages of the project's folder to the site that mkdocs makes of docs/."""

from mkdocs.structure.files import File

PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")


def on_files(files, config):
    for page in PAGES:
        files.append(File.generated(config, page, abs_src_path=page))
    return files


def on_page_markdown(markdown, page, config, files):
    """Corrects links between docs/ and the project's folder, which are one folder in the site."""
    if page.file.src_uri in PAGES:
        return markdown.replace("](docs/", "](")
    for name in PAGES:
        markdown = markdown.replace("](../" + name, "](" + name)
    return markdown
