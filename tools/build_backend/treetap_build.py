"""The build backend (PEP 517, PEP 660): setuptools, with the kernels compiled first; see `kernels`."""

from __future__ import annotations

from typing import Any

import kernels
from setuptools import build_meta
from setuptools.command.bdist_wheel import bdist_wheel

get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
build_sdist = build_meta.build_sdist


class Wheel(bdist_wheel):
    """A wheel of this platform for every Python 3 where it holds kernels, else of any platform."""

    def finalize_options(self) -> None:
        """See `bdist_wheel`; by a distribution with compiled parts the files come to lie where a platform's do."""
        self.distribution.has_ext_modules = (kernels.NATIVE / "kernels.so").exists
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        """Python, binary interface and platform: ctypes loads the kernels, so that any Python will do."""
        return ("py3", "none", "any" if self.root_is_pure else super().get_tag()[2])


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """See PEP 517."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *kernels.requirements()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """See PEP 660."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *kernels.requirements()]


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """See PEP 517."""
    kernels.build()
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """See PEP 660; the kernels come to lie among the sources.

    The clone is on the path, and not behind a finder, which comes after all of the path: there a folder with the name
    of the package, as that in which a clone lies, would be imported in its place.
    """
    kernels.build()
    settings = {"editable_mode": "compat", **(config_settings or {})}
    return build_meta.build_editable(wheel_directory, settings, metadata_directory)
