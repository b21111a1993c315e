#!/usr/bin/env python3
"""Validate result.json files against docs/result.schema.json.

usage: validate_result.py FILE...
exit status: 0 all valid, 1 a file has faults (each printed with its path), 2 usage, 3 python3-jsonschema is missing
"""
import json
import pathlib
import sys

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "docs" / "result.schema.json"


def refuse_constant(name):
    raise ValueError(f"{name} is not JSON")


def faults_of(file, validator):
    """Faults of one file as text, each with the JSON pointer of the value at fault."""
    try:
        result = json.loads(pathlib.Path(file).read_text(encoding="utf-8"), parse_constant=refuse_constant)
    except (OSError, ValueError) as error:
        return [f"{file}: {error}"]
    return [f"{file}: /{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}"
            for error in sorted(validator.iter_errors(result), key=lambda e: list(map(str, e.absolute_path)))]


def main(files, schema_file=SCHEMA, usage=__doc__):
    if not files:
        print(usage, file=sys.stderr)
        return 2
    try:
        from jsonschema import Draft202012Validator
    except ImportError as error:
        print(f"cannot validate: {error} (Debian: apt install python3-jsonschema)", file=sys.stderr)
        return 3
    schema = json.loads(schema_file.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    faults = [fault for file in files for fault in faults_of(file, validator)]
    print("\n".join(faults) or f"{len(files)} file(s) agree with {schema_file.name}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
