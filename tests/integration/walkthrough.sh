#!/usr/bin/env bash
# From a CSV file with holes and text ids to a page that shows what the model found.
# Usage: walkthrough.sh FOLDER, which holds holes.csv, new.csv and labels.csv; `srflvm` is on the path.
set -euo pipefail
cd "$1"

srflvm fit holes.csv --leave-out site --max-iter 3 --frequencies 25 -o model.srflvm
srflvm inspect model.srflvm
srflvm transform model.srflvm new.csv --std -o places.csv
srflvm impute holes.csv --model model.srflvm --leave-out site --std spreads.csv -o filled.csv
srflvm plot model.srflvm --labels labels.csv -o map.png
srflvm explore model.srflvm --data holes.csv --leave-out site --labels labels.csv -o page.html
