// Style and script of every page: plain text, so that a report needs nothing but itself.
#include <fmt/format.h>

#include "report/chart.h"
#include "report/page.h"

namespace myriad {

namespace {

constexpr const char* kStyle = R"css(
:root { color-scheme: light dark;
  --paper: #f7f6f3; --card: #ffffff; --ink: #20262e; --soft: #68707c; --line: #e4e2dc; --grid: #eeece7;
  --c0: #2d6cb5; --c1: #c2632b; --good: #2e7d4f; --bad: #b3372f;
  --forward: #5b8fd0; --backward: #3f9b88; --optimizer: #9a7bc0; --exchange: #e2a33b; --send: #d9774f; --recv: #c4587c; --feed: #9aa3ad; --wait: #c9c6bf;
  --parameters: #5b8fd0; --gradients: #3f9b88; --moments: #9a7bc0; --activations: #e2a33b; --communication: #d9774f; --workspace: #9aa3ad; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14171b; --card: #1b1f25; --ink: #e3e6ea; --soft: #939ca8; --line: #2c323a; --grid: #262b32;
  --c0: #6fa8ea; --c1: #ee9a62; --good: #6cc28f; --bad: #ee837a;
  --forward: #5d93d6; --backward: #46a995; --optimizer: #a386cc; --exchange: #d99f40; --send: #d67c57; --recv: #c9638a; --feed: #6d7681; --wait: #474e58;
  --parameters: #5d93d6; --gradients: #46a995; --moments: #a386cc; --activations: #d99f40; --communication: #d67c57; --workspace: #6d7681; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "PingFang SC", "Microsoft YaHei", "WenQuanYi Micro Hei", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%; }
main { max-width: 1120px; margin: 0 auto; padding: 40px 24px 56px; }
h1 { font-size: 30px; line-height: 1.2; font-weight: 650; letter-spacing: -0.015em; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; font-weight: 620; margin: 44px 0 12px; }
p { margin: 6px 0; } small, .soft { color: var(--soft); font-size: 13px; }
.stopped { color: var(--bad); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px 18px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin-top: 24px; }
.figures b { display: block; font-size: 25px; line-height: 1.25; font-weight: 600; letter-spacing: -0.01em; }
.figures span { display: block; color: var(--soft); font-size: 13px; }
.charts { display: grid; grid-template-columns: repeat(6, minmax(0, 1fr)); gap: 12px; }
.charts .chart { grid-column: span 2; } .charts .chart:nth-child(-n+2) { grid-column: span 3; }
.chart { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 14px 18px 12px; }
figcaption { min-height: 44px; font-size: 14px; } figcaption b { font-weight: 600; }
figcaption output, .timeline output { display: block; color: var(--soft); font-size: 13px; min-height: 20px; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.plot { position: relative; height: 180px; margin: 8px 4px 22px 46px; touch-action: pan-y; cursor: crosshair; }
.charts .chart:nth-child(n+3) .plot { height: 130px; }
.plot svg { width: 100%; height: 100%; display: block; overflow: visible; }
.plot path { fill: none; vector-effect: non-scaling-stroke; }
.grid { stroke: var(--grid); stroke-width: 1; } .reference { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 3 4; }
.raw { stroke-width: 1; opacity: .32; stroke-linejoin: round; } .curve { stroke-width: 1.7; stroke-linejoin: round; } .dots { stroke-width: 5; stroke-linecap: round; }
.c0 { stroke: var(--c0); background: var(--c0); } .c1 { stroke: var(--c1); background: var(--c1); }
.plot span { position: absolute; font-size: 11.5px; line-height: 1; color: var(--soft); pointer-events: none; white-space: nowrap; }
.plot .y { right: calc(100% + 8px); transform: translateY(-50%); } .plot .x { top: calc(100% + 8px); transform: translateX(-50%); }
.plot .ref { right: 2px; transform: translateY(-115%); font-size: 11px; }
.plot .cursor { position: absolute; top: 0; bottom: 0; width: 1px; background: var(--soft); opacity: .5; pointer-events: none; }
.plot .point { position: absolute; width: 9px; height: 9px; margin: -4.5px; border-radius: 50%; border: 2px solid var(--card); pointer-events: none; }
.none { color: var(--soft); }
.key { display: inline-flex; align-items: center; gap: 6px; margin-right: 14px; font-size: 13px; white-space: nowrap; } figcaption .key { margin: 0 0 0 12px; }
.key i { width: 11px; height: 11px; border-radius: 3px; flex: none; }
.legend { display: flex; flex-wrap: wrap; row-gap: 2px; }
.scroll { overflow-x: auto; } .rows { min-width: 620px; }
.row { display: flex; align-items: center; gap: 10px; margin: 3px 0; }
.row > span { flex: 0 0 108px; font-size: 12px; color: var(--soft); white-space: nowrap; }
.row svg { flex: 1; min-width: 0; height: 24px; display: block; cursor: crosshair; background: var(--grid); border-radius: 3px; }
.many .row svg { height: 14px; } .many .row { margin: 1px 0; }
.row path { stroke: var(--card); stroke-width: .7; vector-effect: non-scaling-stroke; } .row path.hidden { fill: var(--grid); stroke: none; } .row path.wait { stroke: none; }
.bar.forward { fill: var(--forward); background: var(--forward); } .bar.backward { fill: var(--backward); background: var(--backward); }
.bar.optimizer { fill: var(--optimizer); background: var(--optimizer); } .bar.exchange { fill: var(--exchange); background: var(--exchange); stroke-width: .3; }
.bar.send { fill: var(--send); background: var(--send); } .bar.recv { fill: var(--recv); background: var(--recv); }
.bar.feed { fill: var(--feed); background: var(--feed); } .bar.wait { fill: var(--wait); background: var(--wait); }
.axis div { flex: 1; position: relative; height: 18px; } .axis em { position: absolute; font-style: normal; font-size: 11.5px; color: var(--soft); transform: translateX(-50%); white-space: nowrap; }
.axis em:first-child { transform: none; }
table { border-collapse: collapse; width: 100%; font-size: 14px; } td, th { padding: 6px 10px 6px 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
tr:last-child td { border-bottom: 0; } th { font-weight: 500; color: var(--soft); font-size: 13px; } .n { text-align: right; white-space: nowrap; } td:last-child, th:last-child { padding-right: 0; }
td { overflow-wrap: anywhere; } .good { color: var(--good); } .bad { color: var(--bad); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 230px), 1fr)); gap: 2px 28px; } .facts div { padding: 4px 0; overflow-wrap: anywhere; } .facts small { display: block; }
.memory { margin-top: 14px; } .memory .row > span { flex-basis: 56px; } .memory .row > b { flex: 0 0 70px; font-weight: 400; font-size: 12px; color: var(--soft); text-align: right; white-space: nowrap; }
.stack { flex: 1; display: flex; height: 14px; border-radius: 3px; overflow: hidden; background: var(--grid); } .stack i { height: 100%; }
.parameters { background: var(--parameters); } .gradients { background: var(--gradients); } .moments { background: var(--moments); }
.activations { background: var(--activations); } .communication { background: var(--communication); } .workspace { background: var(--workspace); }
.samples { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr)); }
blockquote { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; } blockquote b { font-weight: 620; }
details summary { cursor: pointer; color: var(--soft); margin-top: 44px; } details .card { margin-top: 12px; } code { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
footer { margin-top: 44px; color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
@media (max-width: 860px) { .charts .chart, .charts .chart:nth-child(-n+2) { grid-column: span 6; } .charts .chart:nth-child(n+3) .plot { height: 150px; } }
@media (max-width: 520px) { main { padding: 22px 14px 40px; } h1 { font-size: 25px; } h2 { margin-top: 34px; } .figures { grid-template-columns: 1fr 1fr; gap: 8px; } .figures b { font-size: 21px; } .figures div:last-child:nth-child(odd) { grid-column: span 2; }
  .card, .chart { padding: 12px 14px; } td, th { font-size: 13px; padding-right: 8px; } .wide { display: none; } .row > span { flex-basis: 92px; } }
@media print { body { background: none; } .card, .chart { break-inside: avoid; } }
)css";

constexpr const char* kScript = R"js(
const data = JSON.parse(document.getElementById('data').textContent);
function chart(figure, d) {
  const plot = figure.querySelector('.plot'), out = figure.querySelector('output');
  if (!plot) return;
  const add = (name) => { const e = document.createElement('i'); e.className = name; e.hidden = true; plot.append(e); return e; };
  const cursor = add('cursor'), points = d.curves.map((c, i) => add('point c' + i));
  const nearest = (xs, v) => {
    let lo = 0, hi = xs.length - 1;
    while (hi - lo > 1) { const mid = (lo + hi) >> 1; if (xs[mid] < v) lo = mid; else hi = mid; }
    return Math.abs(xs[lo] - v) <= Math.abs(xs[hi] - v) ? lo : hi;
  };
  const show = (event) => {
    const box = plot.getBoundingClientRect(), v = d.x0 + (event.clientX - box.left) / box.width * (d.x1 - d.x0);
    const parts = [];
    let step = null;
    d.curves.forEach((c, i) => {
      const k = nearest(c.x, v), left = 100 * (c.x[k] - d.x0) / (d.x1 - d.x0) + '%';
      if (step === null) { step = c.x[k]; cursor.style.left = left; }
      points[i].style.left = left; points[i].style.top = c.top[k] + '%'; points[i].hidden = false;
      parts.push((c.name ? c.name + ' ' : '') + c.y[k]);
    });
    cursor.hidden = false;
    out.textContent = 'step ' + step + ': ' + parts.join(', ');
  };
  const hide = () => { cursor.hidden = true; points.forEach((p) => { p.hidden = true; }); out.textContent = ''; };
  plot.addEventListener('pointermove', show); plot.addEventListener('pointerdown', show); plot.addEventListener('pointerleave', hide);
}
function timeline(root, d) {
  const out = root.querySelector('output');
  root.querySelectorAll('.row svg').forEach((svg, r) => {
    const show = (event) => {
      const box = svg.getBoundingClientRect(), v = 100 * (event.clientX - box.left) / box.width;
      let found = null;
      for (const s of d.rows[r]) if (s[0] <= v && v <= s[1]) found = s;
      out.textContent = found === null ? '\u00a0' : svg.previousElementSibling.textContent + ': ' + d.names[found[2]] +
        (found[3] >= 0 ? ', unit ' + found[3] : '') + (found[4] >= 0 ? ', micro-batch ' + found[4] : '') + ', ' + found[5];
    };
    svg.addEventListener('pointermove', show); svg.addEventListener('pointerdown', show);
    svg.addEventListener('pointerleave', () => { out.textContent = '\u00a0'; });
  });
}
for (const [id, d] of Object.entries(data)) {
  const element = document.getElementById(id);
  if (element) (d.curves ? chart : timeline)(element, d);
}
)js";

}  // namespace

std::string page_html(const std::string& title, const std::string& body,
                      const nlohmann::json& data) {
  std::string points = data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  for (size_t at = 0; (at = points.find("</", at)) != std::string::npos;)
    points.replace(at, 2, "<\\/");
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n<link rel=\"icon\" "
      "href=\"data:,\">\n<style>{}</style>\n</head>\n"
      "<body>\n<main>\n{}</main>\n<script type=\"application/json\" "
      "id=\"data\">{}</script>\n<script>{}</script>\n</body>\n</html>\n",
      escaped(title), kStyle, body, points, kScript);
}

}  // namespace myriad
