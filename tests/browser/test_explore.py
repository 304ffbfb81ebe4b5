import csv
import time

import numpy as np
import pytest
from helpers import browsers
from helpers.model_files import fit_briefly, made_up, rows_of_each_kind, some_rows

MISSING = browsers.missing_parts()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"trying the page needs {MISSING}")

N_ROWS = 30
IDS = [f"row <b>{i}</b>" for i in range(N_ROWS)]
LABELS = ["low", "high", None] * 10
COUNTS = rows_of_each_kind()["negative_binomial"]


@pytest.fixture(scope="module")
def counts_model():
    return made_up(COUNTS, likelihood="negative_binomial")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def browser(folder):
    driver = browsers.start(folder)
    driver.set_script_timeout(10)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def path(counts_model, folder):
    options = {"data": COUNTS, "labels": LABELS, "ids": IDS, "title": "Some <i>counts</i>"}
    return counts_model.explore(folder / "page.html", **options)


class Page:
    """Loaded page, with methods for what people do with it."""

    def __init__(self, driver, path):
        self.driver = driver
        driver.get(path.as_uri())
        driver.execute_async_script("srflvm.then(({app}) => { window.app = app; arguments[0](); })")

    def ask(self, expression):
        return self.driver.execute_script(f"return {expression}")

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def texts(self, selector):
        return [found.text for found in self.driver.find_elements("css selector", selector)]

    def frame(self):
        """Wait until everything has been drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )

    def on_screen(self, x, y):
        """Return the place of a latent point, from the middle of the canvas."""
        across, down = self.ask(f"app.plane.camera.toScreen({x}, {y})")
        width, height = self.ask("[app.plane.camera.width, app.plane.camera.height]")
        return round(across - width / 2), round(down - height / 2)

    def pointer(self):
        from selenium.webdriver import ActionChains

        return ActionChains(self.driver, duration=20)

    def hover(self, x, y):
        self.pointer().move_to_element_with_offset(self.find("#marks"), *self.on_screen(x, y)).perform()
        self.frame()

    def keys(self, *keys):
        self.pointer().send_keys(*keys).perform()
        self.frame()

    def choose(self, selector, value):
        from selenium.webdriver.support.select import Select

        Select(self.find(selector)).select_by_value(value)
        self.frame()

    def pixels(self):
        """Return a checksum of the drawn points."""
        return self.ask("app.plane.pixels.reduce((sum, pixel) => (Math.imul(sum, 31) + pixel) | 0, 0)")


@pytest.fixture
def page(browser, path):
    loaded = Page(browser, path)
    yield loaded
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")] == []


def test_it_loads_and_shows_rows_as_text(page):
    assert page.find("h1").text == "Some <i>counts</i>"
    assert "30 rows" in page.find("#summary").text
    assert {entry.text for entry in page.driver.find_elements("css selector", ".legend-name")} == {
        "high",
        "low",
        "no label",
    }
    assert len(page.driver.find_elements("css selector", "#nearest button")) == 6
    assert "<b>" in page.find("#nearest .row-name").text


def test_hovering_decodes_as_python_does(page, counts_model):
    point = counts_model.embedding_[3] + 0.05
    page.hover(*point)
    at = page.ask("[...app.cursorPoint()]")
    np.testing.assert_allclose(at, point, atol=0.02)
    mean, std = counts_model.inverse_transform(np.array([at]), return_std=True)
    found = page.ask(
        "(({mean, std}) => ({mean: [...mean], std: [...std]}))(app.decoder.decode(app.cursorPoint()))"
    )
    np.testing.assert_allclose(found["mean"], mean[0], atol=1e-4 * COUNTS.std())
    np.testing.assert_allclose(found["std"], std[0], atol=1e-4 * COUNTS.std())
    shown = dict(zip(page.texts(".bar-name"), page.texts(".bar-value"), strict=True))
    for column in range(4):
        value = float(shown[f"column {column}"].split(" ± ")[0])
        assert value == pytest.approx(mean[0, column], rel=0.01)
    distances = np.linalg.norm(counts_model.embedding_ - at, axis=1)
    assert page.find("#nearest .row-name").text == IDS[np.argmin(distances)]


def test_colours_follow_a_column(page):
    before = page.pixels()
    page.choose("#colour-by", "column")
    box = page.find("#column")
    box.clear()
    box.send_keys("column 2\t")
    page.frame()
    assert page.find(".scale-caption").text == "column 2, data"
    shown = np.array(page.ask("[...app.store.get('painted').colours]"))
    order = np.argsort(COUNTS[:, 2], kind="stable")
    assert shown[order[0]] != shown[order[-1]]
    same = COUNTS[:, 2] == COUNTS[order[0], 2]
    assert len(set(shown[same])) == 1
    assert page.pixels() != before
    page.choose("#colour-by", "uncertainty")
    assert "standard deviation" in page.find(".scale-caption").text


def downloaded(target):
    """Return the content of a file, once it is there."""
    for _ in range(200):
        if target.exists():
            return target.read_bytes()
        time.sleep(0.05)
    raise AssertionError(f"{target.name} was not saved")


def saved_rows(folder):
    return list(csv.reader(downloaded(folder / "selection.csv").decode().splitlines()))


def test_a_lasso_selects_rows_that_are_saved_as_csv(page, counts_model, folder):
    page.find("[data-tool=lasso]").click()
    x = counts_model.embedding_[:, 0]
    middle = np.sort(x)[10:20]
    widest = np.argmax(np.diff(middle))
    edge = middle[widest : widest + 2].mean()
    corners = [(-9, -9), (edge, -9), (edge, 9), (-9, 9)]
    edges = page.ask("app.plane.camera.bounds")
    inside = [
        (np.clip(a, edges["left"] + 0.02, None), np.clip(b, edges["bottom"] + 0.02, edges["top"] - 0.02))
        for a, b in corners
    ]
    drag = page.pointer().move_to_element_with_offset(page.find("#marks"), *page.on_screen(*inside[0]))
    drag.click_and_hold()
    for corner in inside[1:]:
        drag.move_to_element_with_offset(page.find("#marks"), *page.on_screen(*corner))
    drag.release().perform()
    page.frame()
    page.find("#csv").click()
    header, *lines = saved_rows(folder)
    columns = page.ask("app.rows.dataColumns")
    assert header == ["id", "label", "latent_1", "latent_2", *(f"column {j}" for j in columns)]
    chosen = np.flatnonzero(x < edge)
    assert [line[0] for line in lines] == [IDS[row] for row in chosen]
    assert [line[1] for line in lines] == [LABELS[row] or "" for row in chosen]
    values = np.array([line[2:] for line in lines], float)
    np.testing.assert_allclose(values[:, :2], counts_model.embedding_[chosen], rtol=1e-5)
    np.testing.assert_array_equal(values[:, 2:], COUNTS[chosen][:, columns])


def test_dark_and_light(page):
    first = page.ask("getComputedStyle(document.body).backgroundColor")
    page.find("#theme").click()
    page.frame()
    assert page.ask("getComputedStyle(document.body).backgroundColor") != first
    assert page.ask("app.plane.pixels[0] >>> 0") == 0xFF221B17
    page.find("#theme").click()
    page.frame()
    assert page.ask("app.plane.pixels[0] >>> 0") == 0xFFFFFFFF


def test_the_system_can_ask_for_dark(browser, path):
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    assert Page(browser, path).ask("document.documentElement.dataset.theme") == "dark"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_it_can_be_used_by_keyboard(page):
    from selenium.webdriver.common.keys import Keys

    page.driver.execute_script("document.getElementById('marks').focus()")
    centre, scale = page.ask("[...app.plane.camera.centre]"), page.ask("app.plane.camera.scale")
    page.keys(Keys.ARROW_RIGHT)
    assert page.ask("app.plane.camera.centre[0]") > centre[0]
    page.keys("+")
    assert page.ask("app.plane.camera.scale") > scale
    page.keys("0")
    assert page.ask("app.plane.camera.scale") == scale
    cursor = page.ask("app.store.get('cursor')")
    page.pointer().key_down(Keys.SHIFT).send_keys(Keys.ARROW_UP).key_up(Keys.SHIFT).perform()
    assert page.ask("app.store.get('cursor')")[1] > cursor[1]
    assert "Nearest row" in page.find("#live").get_attribute("textContent")
    page.keys(Keys.ENTER)
    assert page.find("#pin-state").is_displayed()
    page.keys(Keys.SPACE)
    assert page.ask("app.store.get('selection').length") == 1
    page.keys("p")
    page.pointer().key_down(Keys.SHIFT).send_keys(Keys.ARROW_LEFT * 5).key_up(Keys.SHIFT).perform()
    page.keys("p")
    assert len(page.driver.find_elements("css selector", ".along-row")) == 4
    page.keys(Keys.ESCAPE)
    assert not page.find("#pin-state").is_displayed()
    assert not page.find("#path-card").is_displayed()


def test_tab_reaches_every_control_in_order(page):
    from selenium.webdriver.common.keys import Keys

    visited = []
    for _ in range(12):
        page.keys(Keys.TAB)
        visited.append(page.ask("document.activeElement.id || document.activeElement.dataset.tool || ''"))
    wanted = ["search", "theme", "help", "pan", "lasso", "path", "colour-by", "fog", "png", "marks"]
    assert [name for name in visited if name in wanted] == wanted


def test_search_goes_to_a_row(page, counts_model):
    from selenium.webdriver.common.keys import Keys

    page.find("#search").send_keys("<b>17", Keys.ENTER)
    page.frame()
    np.testing.assert_allclose(page.ask("app.store.get('cursor')"), counts_model.embedding_[17], rtol=1e-5)
    assert page.find("#nearest .row-name").text == IDS[17]


def test_the_variance_map_and_the_picture_of_the_view(page, folder):
    plain = page.pixels()
    page.find("#fog").click()
    for _ in range(20):
        page.frame()
    assert page.pixels() != plain
    page.find("#png").click()
    assert downloaded(folder / "latent-plane.png").startswith(b"\x89PNG")


def test_a_model_with_an_affine_part(browser, page, folder):
    assert page.find("#kernel-hint").text == "correlation"
    Y = some_rows()
    settings = {"likelihood": "student_t", "affine": True, "n_frequencies": 5, "n_components": 3}
    model = fit_briefly(Y, max_iter=1, **settings)
    shown = Page(browser, model.explore(folder / "affine.html", data=Y))
    assert shown.find("#kernel-hint").text == "correlation, without the linear part"
    shown.hover(*model.embedding_[3, shown.ask("app.store.get('dims')")])
    point = np.array([shown.ask("[...app.cursorPoint()]")])
    mean, std = model.inverse_transform(point, return_std=True)
    found = shown.ask(
        "(({mean, std}) => ({mean: [...mean], std: [...std]}))(app.decoder.decode(app.cursorPoint()))"
    )
    np.testing.assert_allclose(found["mean"], mean[0], atol=1e-4 * Y.std())
    np.testing.assert_allclose(found["std"], std[0], atol=1e-4 * Y.std())
    posterior = model._posterior
    squares = 1.0 + posterior.affine[0] ** 2 + np.sum((posterior.affine[1:] * point[0]) ** 2)
    share = np.mean(posterior.function_moments(point)[1] / (posterior.amplitude * squares))
    assert shown.find("#sure").text == f"{round(100 * share)} % of the prior variance left"


def test_images_and_a_path_through_them(browser, counts_model, folder):
    shown = Page(browser, counts_model.explore(folder / "images.html", image_shape=(2, 2)))
    shown.hover(*counts_model.embedding_[3])
    mean = counts_model.inverse_transform(np.array([shown.ask("[...app.cursorPoint()]")]))[0]
    image = "document.querySelector('.picture').getContext('2d').getImageData(0, 0, 2, 2)"
    red = f"{image}.data.filter((_, i) => i % 4 === 0)"
    low, high = shown.ask("app.payload.image_range")
    share = np.clip((mean - low) / (high - low), 0.0, 1.0)
    np.testing.assert_allclose(shown.ask(f"[...{red}]"), 255.0 - (255.0 - 16.0) * share, atol=1.5)
    shown.driver.execute_script("app.store.set({path: [[-1, 0], [1, 0.5]]})")
    shown.frame()
    assert len(shown.driver.find_elements("css selector", ".strip canvas")) == 9
