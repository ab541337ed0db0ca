"""The page in Debian's Chromium, headless, from disk, with the network off: what it draws, and what its controls do.

Without a browser these tests are skipped on a laptop, and fail where CI=true.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from roofline.records import Run
from roofline.reports.figure import write_image
from roofline.reports.html import page
from roofline.reports.view import View, view_of_runs
from tests.reports import runs

pytestmark = pytest.mark.browser
Opened = Callable[[View], Any]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
# Nothing resolves, and what would be fetched anyway fails loudly in the console.
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND"
FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", OFFLINE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None or DRIVER is None:
        missing = "needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    """Open a view from disk on a screen of 1280 x 900; the console must stay empty."""

    def open_(shown: View, *, width: int = 1280, dark: bool = False) -> Any:
        path = tmp_path / "report.html"
        path.write_text(page(shown), encoding="utf-8")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        browser.get(path.as_uri())
        assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
        return browser

    browser.get_log("browser")
    yield open_
    assert browser.get_log("browser") == []


@pytest.fixture(scope="module")
def shown() -> View:
    return view_of_runs([runs.run(points=[*runs.records(), *runs.broken()])])


def drawn(browser: Any, kind: str, chart: str = "roofline") -> list[tuple[float, float]]:
    """The markers of ``kind`` as the chart holds them."""
    script = """
    const traces = document.getElementById(arguments[0]).data.filter((trace) => trace.meta === arguments[1]);
    return traces.flatMap((trace) => Array.from(trace.x, (x, at) => [x, trace.y[at]]));
    """
    return [tuple(place) for place in browser.execute_script(script, chart, kind)]


def choose(browser: Any, control: str, value: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.select import Select

    Select(browser.find_element(By.ID, control)).select_by_value(value)


def column(browser: Any, heading: str) -> list[str]:
    script = """
    const heads = [...document.querySelectorAll("#table thead th")].map((cell) => cell.textContent.replace(/ [▲▼]/, ""));
    const at = heads.indexOf(arguments[0]);
    return [...document.querySelectorAll("#table tbody tr")].map((row) => row.cells[at].textContent);
    """
    return list(browser.execute_script(script, heading))


def filtered(browser: Any, words: str) -> None:
    from selenium.webdriver.common.by import By

    field = browser.find_element(By.ID, "filter")
    field.clear()
    field.send_keys(words)
    time.sleep(0.4)  # typing is collected for 0.12 s


def overflow(browser: Any) -> int:
    return int(browser.execute_script("drawEverything(); return document.documentElement.scrollWidth - window.innerWidth"))


def test_the_chart_has_the_points(opened: Opened, shown: View) -> None:
    browser = opened(shown)
    measured = [each for each in shown.points if each.measured_s and each.flops and each.hbm_used]
    expected = [(each.flops / each.hbm_used, each.flops / each.measured_s) for each in measured]  # type: ignore[operator]
    for found, wanted in zip(sorted(drawn(browser, "measured")), sorted(expected), strict=True):
        assert found == pytest.approx(wanted, rel=1e-4)
    ours = [each for each in shown.points if each.is_ours and each.predicted_s["measured"]]
    assert len(drawn(browser, "predicted")) == len(ours)
    script = 'return document.querySelectorAll("#roofline .scatterlayer .trace path.point").length'
    assert browser.execute_script(script) == len(measured) + len(ours)
    assert browser.execute_script("return document.getElementById('shown').textContent") == "77 of 77 points"


def test_switch_of_the_axis(opened: Opened, shown: View) -> None:
    browser = opened(shown)
    choose(browser, "axis", "sm")
    counted = [each for each in shown.points if each.measured_s and (each.sm_counted or each.is_ours)]
    expected = [each.flops / (each.sm_counted or each.sm_bytes) for each in counted]  # type: ignore[operator]
    assert sorted(x for x, _ in drawn(browser, "measured")) == pytest.approx(sorted(expected), rel=1e-4)
    choose(browser, "axis", "l2")
    assert len(drawn(browser, "measured")) == sum(each.l2_counted is not None for each in shown.points)
    assert not drawn(browser, "predicted")


def test_switch_of_the_roof(opened: Opened, shown: View) -> None:
    browser = opened(shown)
    assert browser.execute_script("return document.getElementById('roof').value") == "measured"
    before = drawn(browser, "predicted")
    choose(browser, "roof", "datasheet")
    after = drawn(browser, "predicted")
    ours = [each for each in shown.points if each.is_ours and each.flops]
    expected = [each.flops / each.predicted_s["datasheet"] for each in ours]  # type: ignore[operator]
    assert sorted(y for _, y in after) == pytest.approx(sorted(expected), rel=1e-4)
    assert before != after


def test_switches_of_dtype_and_phase(opened: Opened, shown: View) -> None:
    browser = opened(shown)
    choose(browser, "dtype", "fp16")
    assert len(drawn(browser, "measured")) == sum(each.dtype == "fp16" for each in shown.points)
    choose(browser, "dtype", "")
    choose(browser, "phase", "decode")
    assert len(drawn(browser, "measured")) == sum(each.phase == "decode" for each in shown.points)
    assert set(column(browser, "phase")) == {"decode"}


def test_filter_acts_on_charts_table_and_verdicts(opened: Opened, shown: View) -> None:
    browser = opened(shown)
    filtered(browser, "mla decode")
    wanted = [each for each in shown.points if each.variant == "mla" and each.phase == "decode"]
    assert len(drawn(browser, "measured")) == len(wanted) == len(column(browser, "#"))
    verdicts = browser.execute_script("return [...document.querySelectorAll('#verdicts li')].map((item) => item.textContent)")
    assert len(verdicts) == len(wanted)
    assert "mla/absorbed" in verdicts[0]
    filtered(browser, "nothing at all")
    assert not column(browser, "#")


def test_sorting(opened: Opened, shown: View) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser = opened(shown)
    times = {str(each.number): each.measured_s for each in shown.points}
    browser.find_element(By.CSS_SELECTOR, 'th button[data-key="time_s"]').click()
    up = [times[number] for number in column(browser, "#") if times[number]]
    assert up == sorted(up)  # type: ignore[type-var]
    browser.find_element(By.CSS_SELECTOR, 'th button[data-key="time_s"]').send_keys(Keys.ENTER)  # by keyboard
    down = [times[number] for number in column(browser, "#")]
    assert down == sorted((value for value in times.values() if value), reverse=True)[:50]
    state = browser.find_element(By.CSS_SELECTOR, 'th[aria-sort="descending"]').text
    assert state == "time ▼"
    browser.find_element(By.ID, "next").click()
    assert column(browser, "status")[-4:] == ["wrong", "failed", "unsupported", "predicted"]  # no time: last, in file order


def test_copy_and_csv(opened: Opened, shown: View) -> None:
    from selenium.webdriver.common.by import By

    browser = opened(shown)
    browser.execute_script("""
    window.taken = [];
    Object.defineProperty(navigator, "clipboard", {value: {writeText: async (text) => window.taken.push(text)}});
    URL.createObjectURL = (blob) => { window.blob = blob; return "#"; };
    """)
    filtered(browser, "chunked")
    browser.find_element(By.ID, "all-columns").click()
    browser.find_element(By.ID, "copy").click()
    time.sleep(0.2)
    (text,) = browser.execute_script("return window.taken")
    header, *lines = text.rstrip("\n").split("\n")
    wanted = [each for each in shown.points if "chunked" in each.configuration]
    assert len(lines) == len(wanted)
    first = dict(zip(header.split("\t"), lines[0].split("\t"), strict=True))
    assert int(first["flops"]) == wanted[0].flops
    assert float(first["time_s"]) == pytest.approx(wanted[0].measured_s, rel=1e-5)
    assert browser.find_element(By.ID, "copied").text == f"copied {len(wanted)} rows"
    browser.find_element(By.ID, "csv").click()
    saved = browser.execute_async_script("window.blob.text().then(arguments[0])")
    assert saved.split("\n")[0] == header.replace("\t", ",")
    assert len(saved.rstrip("\n").split("\n")) == len(wanted) + 1


def test_a_number_in_the_table_shows_its_point(opened: Opened, shown: View) -> None:
    from selenium.webdriver.common.by import By

    browser = opened(shown)
    browser.execute_script("document.querySelector('#table tbody tr:nth-child(3) button').click()")
    assert "mha/flash" in browser.find_element(By.ID, "selected").text
    assert len(drawn(browser, "ring")) == 1


def test_hover_says_bytes_flops_share_and_limit(opened: Opened, shown: View) -> None:
    browser = opened(shown)
    script = "return document.getElementById('roofline').data.filter((trace) => trace.meta === 'measured')[0].hovertext[0]"
    words = browser.execute_script(script)
    for part in ("mha/naive", "68.7 GFLOP", "HBM (counted)", "of the measured roof", "limited by HBM", "p10"):
        assert part in words


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_overflows(opened: Opened, shown: View, width: int, dark: bool) -> None:
    browser = opened(shown, width=width, dark=dark)  # type: ignore[call-arg]
    assert overflow(browser) <= 0
    colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (colour == "rgb(255, 255, 255)") is not dark
    # Nothing is drawn outside its chart, and neither legend nor titles cover data.
    script = """
    return ["roofline", "bytes", "accuracy", "time", "kv"].filter((id) => {
      const box = document.getElementById(id).getBoundingClientRect();
      const legend = document.querySelector(`#${id} .legend`)?.getBoundingClientRect();
      const inside = document.querySelector(`#${id} .gridlayer`).getBoundingClientRect();  // as large as the plot
      const titles = ["FLOP/s", "time of one call", "bytes / counted"];
      const title = [...document.querySelectorAll(`#${id} .annotation`)].find((each) => titles.includes(each.textContent));
      const covers = title && title.getBoundingClientRect().right > inside.left;
      const clipped = legend && (legend.top < inside.bottom || legend.bottom > box.bottom);
      return box.right > innerWidth + 1 || clipped || covers;
    });
    """
    assert browser.execute_script(script) == []


def test_theme_button(opened: Opened, shown: View) -> None:
    from selenium.webdriver.common.by import By

    browser = opened(shown)
    for theme in ("light", "dark"):
        browser.find_element(By.ID, "theme").click()
        assert browser.execute_script("return document.documentElement.dataset.theme") == theme


def test_hostile_strings_do_not_run(opened: Opened) -> None:
    browser = opened(view_of_runs([runs.hostile()]))
    browser.execute_script("drawEverything(); document.getElementById('all-columns').click(); choose(1, false)")
    assert browser.execute_script("return window.hacked === undefined")
    assert browser.execute_script("return document.querySelectorAll('main img, main script').length") == 0
    words = browser.execute_script("return document.getElementById('verdicts').textContent")
    assert runs.HOSTILE.split("\u2028")[0].strip() in words


def test_two_runs_share_the_axes(opened: Opened) -> None:
    shown = view_of_runs([runs.run("a.jsonl"), runs.run("b.jsonl", runs.records(seed=3, speed=1.1))])
    browser = opened(shown)
    both = browser.execute_script("return document.getElementById('roofline').layout.xaxis.range")
    assert len(drawn(browser, "measured")) == len(shown.points)
    choose(browser, "run", "1")
    assert len(drawn(browser, "measured")) == len(shown.points) // 2
    assert browser.execute_script("return document.getElementById('roofline').layout.xaxis.range") == both


@pytest.mark.parametrize("points", [[], runs.broken()[:1], runs.records()[:5]], ids=["none", "one failed", "five"])
def test_small_runs(opened: Opened, points: list[Any]) -> None:
    browser = opened(view_of_runs([Run(Path("small.jsonl"), runs.header(), tuple(points))]))
    assert overflow(browser) <= 0


def test_ten_thousand_points_open_in_three_seconds(opened: Opened) -> None:
    shown = view_of_runs([runs.many(10_000)])
    browser = opened(shown)
    took = []
    for _ in range(3):  # the best of three: this machine may have other things to do
        browser.refresh()
        took.append(browser.execute_script("return performance.getEntriesByType('navigation')[0].duration"))
    assert min(took) < 3000
    started = time.perf_counter()
    choose(browser, "phase", "decode")
    assert time.perf_counter() - started < 2
    assert 0 < len(drawn(browser, "measured")) <= 2500
    assert len(column(browser, "#")) == 50


def test_png_and_svg_by_plotly_itself(browser: Any, shown: View, tmp_path: Path) -> None:
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<svg")):
        write_image(shown, tmp_path / f"roofline{suffix}")
        assert (tmp_path / f"roofline{suffix}").read_bytes().startswith(start)
