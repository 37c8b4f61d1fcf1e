"""Opens reports in headless Chromium and checks what a reader sees.

    check_report.py SORDINO OUTPUT_FOLDER

Makes a run, runs that are not private, a comparison and an audit, writes their reports, and checks each at three widths, in light and in dark mode:
the page does not scroll sideways, no text is cut off, no texts of a chart overlap, text has a contrast of at least 4.5, and the console has no
messages. Screenshots and a PDF of the printed page are written to the output folder. Needs the Debian package `chromium`; the browser is driven by its
DevTools protocol over a pipe, so that no other package is needed.
"""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

WIDTHS = [360, 800, 1600]

# Runs in the page and returns a list of problems.
CHECK = r"""
(() => {
  const problems = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    problems.push(`the page is ${root.scrollWidth} px wide in a window of ${root.clientWidth} px`);
  }
  const visible = (e) => e.getClientRects().length > 0 && !e.closest(".skip");
  const name = (e) => `${e.tagName.toLowerCase()} "${e.textContent.trim().slice(0, 40)}"`;
  for (const e of document.querySelectorAll("body *:not(svg *)")) {
    if (!visible(e) || e.closest("svg") || e.matches(".scroll")) continue;
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && !e.closest(".scroll")) problems.push(`${name(e)} is cut off`);
    const box = e.getBoundingClientRect();
    if (!e.closest(".scroll") && (box.left < -1 || box.right > root.clientWidth + 1)) problems.push(`${name(e)} is outside the window`);
  }
  for (const svg of document.querySelectorAll("svg.chart")) {
    if (!visible(svg)) continue;
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map((e) => [e, e.getBoundingClientRect()]);
    for (const [i, [e, a]] of texts.entries()) {
      if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 || a.bottom > frame.bottom + 1) {
        problems.push(`${name(e)} leaves its chart`);
      }
      if (parseFloat(getComputedStyle(e).fontSize) * frame.width / svg.viewBox.baseVal.width < 8.5) problems.push(`${name(e)} is too small`);
      for (const [f, b] of texts.slice(i + 1)) {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        // Boxes include the space above and below letters.
        if (wide > 1 && high > 4) problems.push(`${name(e)} overlaps ${name(f)}`);
      }
    }
  }
  const channels = (text) => text.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255, v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const colour = channels(getComputedStyle(e).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  let texts = 0;
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !visible(e) || ["TITLE", "DESC"].includes(e.tagName.toUpperCase())) continue;
    const style = getComputedStyle(e);
    // A cell of a heat map lies behind its number, not the page. The crate tests these colours.
    if (e.closest("svg") && !e.getAttribute("class")) continue;
    const [a, b] = [luminance(channels(e.closest("svg") ? style.fill : style.color)), luminance(behind(e))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (!(contrast >= 4.5)) problems.push(`${name(e)} has a contrast of ${contrast.toFixed(2)}`);
    texts += 1;
  }
  if (texts < 20) problems.push(`the page has only ${texts} texts`);
  const levels = [...document.querySelectorAll("h1, h2, h3, h4")].map((e) => Number(e.tagName[1]));
  if (levels[0] !== 1 || levels.some((level, i) => i > 0 && level > levels[i - 1] + 1)) problems.push(`headings are out of order: ${levels}`);
  for (const landmark of ["header", "nav", "main", "footer"]) {
    if (document.querySelectorAll(landmark).length !== 1) problems.push(`the page needs one ${landmark}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size !== ids.length) problems.push("an id is used twice");
  for (const link of document.querySelectorAll("a[href]")) {
    if (!document.getElementById(link.getAttribute("href").slice(1))) problems.push(`${name(link)} leads nowhere`);
  }
  if (document.scripts.length > 0) problems.push("the page has a script");
  return problems;
})()
"""


# Faults that the check must find, and a part of each message.
PLANTED = """<p style="color:#888888">pale</p><p style="width:3000px">wide</p><a href="#nowhere">lost</a><h4>deep</h4><h1>high</h1>
<svg class="chart" viewBox="0 0 200 100"><text x="5" y="50" class="ink">first</text><text x="9" y="50" class="ink">second</text></svg>
<div style="width:20px;overflow:hidden;white-space:nowrap">cut off text</div><script>console.log(1)</script>"""
EXPECTED = ["contrast", "px wide", "leads nowhere", "overlaps", "is cut off", "outside the window", "a script", "console"]


class Browser:
    """Chromium, driven over a pipe: messages are JSON, each followed by a zero byte."""

    def __init__(self, profile):
        to_child, self.write_end = os.pipe()
        self.read_end, from_child = os.pipe()
        command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                   "--no-first-run", f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        # Chromium reads from descriptor 3 and writes to descriptor 4.
        shell = f'exec "$@" 3<&{to_child} 4>&{from_child}'
        self.process = subprocess.Popen(["bash", "-c", shell, "bash", *command], pass_fds=[to_child, from_child],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self.buffer, self.number, self.events, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")

    def message(self):
        while b"\0" not in self.buffer:
            chunk = os.read(self.read_end, 1 << 20)
            if not chunk:
                sys.exit("Chromium ended unexpectedly")
            self.buffer += chunk
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.write_end, json.dumps(request).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    sys.exit(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def open(self, path):
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message())

    def complaints(self):
        """Console messages, exceptions, and requests for anything but the page itself."""
        for event in self.events:
            if event.get("method") in ["Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"]:
                yield f"console: {json.dumps(event['params'])[:300]}"
            if event.get("method") == "Network.requestWillBeSent":
                url = event["params"]["request"]["url"]
                if not url.startswith(("file:", "data:")):
                    yield f"the page asks for {url}"

    def problems(self, path):
        self.open(path)
        # Tables of numbers are part of the page.
        self.evaluate("document.querySelectorAll('details').forEach((e) => e.open = true)")
        problems = self.evaluate(CHECK) + list(self.complaints())
        self.evaluate("document.querySelectorAll('details').forEach((e) => e.open = false)")
        return list(dict.fromkeys(problems))

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self, dark):
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            sys.exit(f"the check itself failed: {result['exceptionDetails']}")
        return result["result"].get("value")

    def close(self):
        self.call("Browser.close")
        self.process.wait(timeout=20)


def make_reports(sordino, folder):
    """Reports of several kinds, by name."""

    def run(*arguments):
        subprocess.run([sordino, *map(str, arguments)], check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    run("train", "--steps", 400, "--out", "a/run")
    run("train", "--steps", 300, "--algorithm", "dynamic", "--out", "b/dynamic")
    run("train", "--steps", 60, "--algorithm", "dice-published", "--epsilon", 2, "--out", "c/published")
    run("train", "--steps", 60, "--seed", 1, "--out", "d/seeded")
    run("compare", "--algorithms", "dp-sgd,dynamic,dice,dice-two-release,dice-published", "--steps", 60, "--repeats", 3, "--out", "comparison.json")
    (folder / "grid.toml").write_text("learning_rate = [10, 20, 40]\nmax_grad_norm = [0.05, 0.1]\n")
    run("compare", "--algorithms", "dp-sgd", "--steps", 40, "--repeats", 2, "--tune", "grid.toml", "--out", "tuned.json")
    shown = json.loads(subprocess.run([sordino, "show", "a/run", "--json"], check=True, cwd=folder, capture_output=True).stdout)
    fixture = pathlib.Path(__file__).parent / "fixtures" / "audit.json"
    audit = json.loads(fixture.read_text())
    (folder / "audit.json").write_text(json.dumps(audit))
    # The audit of the run itself, whose points are shown below the run's curve.
    audit["claim"] = {"epsilon": shown["epsilon"], "delta": shown["delta"], "proved": True}
    (folder / "own-audit.json").write_text(json.dumps(audit))
    audit["claim"]["proved"] = False
    audit["attacks"][0]["lower_bound"] = 3.7
    audit["checks"][0]["measured"] = 0.25
    (folder / "refuted.json").write_text(json.dumps(audit))
    sources = {
        "run": ["a/run"], "dynamic": ["b/dynamic"], "published": ["c/published"], "seeded": ["d/seeded"], "comparison": ["comparison.json"],
        "tuned": ["tuned.json"], "audit": ["audit.json"], "refuted": ["refuted.json"], "all": ["a/run", "own-audit.json", "comparison.json"],
    }
    reports = {}
    for name, paths in sources.items():
        reports[name] = folder / f"{name}.html"
        run("report", *paths, "--out", reports[name])
    return reports


def check_the_check(browser, report, path):
    """The check finds faults that are planted into a report."""
    path.write_text(report.read_text().replace("</main>", PLANTED + "</main>"))
    browser.size(360, 900)
    problems = browser.problems(path)
    missed = [part for part in EXPECTED if not any(part in problem for problem in problems)]
    if missed:
        sys.exit(f"the check misses planted faults: {missed}; it found {problems}")


def main():
    sordino, output = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    found = 0
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        reports = make_reports(sordino, temporary)
        browser = Browser(temporary / "profile")
        check_the_check(browser, reports["run"], temporary / "faulty.html")
        for name, path in reports.items():
            for dark in [False, True]:
                browser.dark(dark)
                for width in WIDTHS:
                    browser.size(width, 900)
                    for problem in browser.problems(path):
                        found += 1
                        print(f"{name} at {width} px, {'dark' if dark else 'light'}: {problem}")
                    height = browser.evaluate("Math.ceil(document.documentElement.scrollHeight)")
                    browser.size(width, min(height, 12000))
                    picture = browser.call("Page.captureScreenshot", format="png")
                    file = output / f"{name}-{width}{'-dark' if dark else ''}.png"
                    file.write_bytes(base64.b64decode(picture["data"]))
            browser.dark(False)
            browser.size(800, 900)
            pdf = browser.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
            (output / f"{name}.pdf").write_bytes(base64.b64decode(pdf["data"]))
        browser.close()
    print(f"{len(reports)} reports at {len(WIDTHS)} widths in 2 colour schemes: {found} problems; pictures are in {output}")
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
