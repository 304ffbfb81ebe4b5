"""Pages are sound HTML files, whatever texts they are given."""

import re

import pytest
from helpers.explore_pages import payload_in, run_in_node

from srflvm.explore.page import SCRIPTS, _script


@pytest.fixture
def page(tmp_path):
    return tmp_path / "page.html"


def test_the_page_is_one_file_that_refers_to_nothing(model, page):
    assert model.explore(page) == page
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert not re.search(r"\b(import|fetch|XMLHttpRequest)\b\s*[(\"']", text)
    assert "%%" not in text
    told = int(re.search(r"This page is (\d+) kB", text).group(1))
    assert told == pytest.approx(page.stat().st_size / 1e3, abs=1)


def test_scripts_are_sound_and_small():
    run_in_node("")
    for name in SCRIPTS:
        assert _script([name]).count("\n") <= 300, name
    assert "</script" not in _script(SCRIPTS)
    assert "innerHTML" not in _script(SCRIPTS)


def test_text_of_users_stays_text(model, page):
    evil = "</script><script>alert(1)</script>&<!--"
    ids = [f"{evil}{i}" for i in range(30)]
    model.explore(page, ids=ids, labels=[evil] * 30, title=evil)
    text = page.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert text.count("</script>") == 2
    payload = payload_in(page)
    assert payload["ids"] == ids
    assert payload["labels"]["names"] == [evil]
    assert payload["title"] == evil
