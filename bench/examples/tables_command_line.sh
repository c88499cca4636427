#!/bin/sh
# Tables without code: randomise a CSV file, estimate from the result, see what was spent.
# Usage: sh bench/examples/tables_command_line.sh [FOLDER]; dpcore must be on the PATH.
set -eu
cd "${1:-$(mktemp -d)}"

# What is public: bounds and categories. In practice you write this by hand.
cat > schema.toml <<'END'
[columns.age]
lower = 0
upper = 100

[columns.fuel]
categories = ["gas", "oil", "none"]
END

# The private data.
awk 'BEGIN { split("gas oil none", fuel, " "); print "age,fuel";
             for (i = 0; i < 200000; i++) print 20 + i % 41 "," fuel[1 + i % 3] }' > survey.csv

# The key is made beside the input and stays secret; the result may be published.
dpcore privatize survey.csv --schema schema.toml --epsilon 3 -o reports.parquet \
    --ledger ledger.sqlite --budget 5

# Run again, after a crash for instance: the same bytes, charged once.
dpcore privatize survey.csv --schema schema.toml --epsilon 3 -o reports.parquet \
    --ledger ledger.sqlite

# The server needs nothing but the result.
dpcore estimate reports.parquet
dpcore account ledger.sqlite
