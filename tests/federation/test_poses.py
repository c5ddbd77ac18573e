"""Poses and intensities of single images stay at a site, and have no bounds: sites refuse them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from anamorph import ShapeAppearanceModel
from anamorph.federation.coordinator import fit
from anamorph.federation.protocol.errors import PolicyError
from anamorph.federation.site.setting_ranges import DEFAULT_RANGES, check_ranges
from anamorph.images.format import ImageFormat
from anamorph.model.checks import ArgumentError
from tests.simulated import random_settings


def test_sites_refuse_settings_with_poses():
    settings = random_settings("gaussian", shape_penalty=(0.01, 0.1, 1.0, 0.1, 0.1))
    check_ranges(settings, DEFAULT_RANGES)
    posed = random_settings("gaussian", align="rigid")
    with pytest.raises(PolicyError, match="no questions about poses: align must be 'none'"):
        check_ranges(posed, DEFAULT_RANGES)


def test_a_coordinator_says_so_before_it_asks(monkeypatch):
    found = SimpleNamespace(format=ImageFormat("gaussian", (8, 8), 1, None), voxel_size=None)
    monkeypatch.setattr(fit, "_described", lambda *_: found)
    model = ShapeAppearanceModel(2, align="affine")
    with pytest.raises(ArgumentError, match="align must be 'none' across sites, got 'affine'"):
        fit.federated_fit(model, None, ["a", "b", "c"])


def test_sites_refuse_intensities_of_their_own():
    own = random_settings("gaussian", intensity="smooth")
    with pytest.raises(PolicyError, match="intensity must be 'global', got 'smooth'"):
        check_ranges(own, DEFAULT_RANGES)


def test_a_coordinator_says_that_intensities_are_global(monkeypatch):
    found = SimpleNamespace(format=ImageFormat("gaussian", (8, 8), 1, None), voxel_size=None)
    monkeypatch.setattr(fit, "_described", lambda *_: found)
    model = ShapeAppearanceModel(2, intensity="per image")
    with pytest.raises(ArgumentError, match="intensity must be 'global' across sites"):
        fit.federated_fit(model, None, ["a", "b", "c"])
