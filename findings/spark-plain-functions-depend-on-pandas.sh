#!/bin/sh
# PySpark 4.3.0: what a plain Python function returns depends on whether pandas is installed, although it uses none.
#
# By default such functions run over Arrow, which converts what they return to the declared type: the text "5" is 5
# in an int column. That needs pyarrow and pandas; without pandas Spark warns and pickles rows instead, and then a
# value of another type is NULL, without an error. So a job that is right on one machine writes NULLs on
# another whose image lacks a package that nobody imports.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyspark==4.3.0 pyarrow==26.0.1
cat >"$folder/job.py" <<'PYTHON'
import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession, functions

spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
number = functions.udf(lambda _: "5", "int")
print("RESULT", spark.range(1).select(number("id")).first()[0])
PYTHON
run() { "$folder/venv/bin/python" -W ignore "$folder/job.py" 2>/dev/null | sed -n 's/^RESULT //p'; }
without=$(run)
"$folder/venv/bin/pip" install --quiet pandas==3.1.1
with=$(run)
echo "udf(lambda _: \"5\", \"int\"): $without without pandas, $with with it"
[ "$without $with" = "None 5" ] || { echo "the behaviour changed" >&2; exit 1; }
