"""Headless Chromium that tests and the explorer's benchmark drive."""

import shutil
from pathlib import Path

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-device-scale-factor=1",
    "--window-size=1360,900",
)


def missing_parts():
    """Name the parts that are not installed; return an empty text if a browser can be started."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium (pip install 'srflvm[dev]')"
    if _browser() is None or shutil.which("chromedriver") is None:
        return "Chromium and its driver (the packages chromium and chromium-driver of Debian)"
    return ""


def start(folder: Path):
    """Start a browser with an empty profile, which saves downloads in the folder."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = _browser() or ""
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver") or "")
    return webdriver.Chrome(options=options, service=service)


def _browser():
    return shutil.which("chromium") or shutil.which("google-chrome")
