#!/usr/bin/env bash
# predicted_bytes.sh [BUILD] [FOLDER] -- predicted against measured bytes of 24 layouts, as FOLDER/predicted_bytes.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release} folder=${2:-results/campaigns}
mkdir -p "$folder"
table=$(mktemp)
trap 'rm -f "$table"' EXIT
cat > "$table" <<'END'
Bytes of the fullest rank: predicted by a projection without data, and measured in the run. p, d, e: pipeline, data and
expert parallel ranks; m: micro-batches of b sequences. Total: the peak of live blocks, each rounded to the alignment;
activations: their own peak; reserved: the arena's high-water mark, holes between blocks included; overhead: reserved
over the total's peak. flexible:ratio has a quarter of what lies between the least feasible cap and what `keep` needs.
Reserved may vary a little from run to run: the space of a message is used again once it has left. Made by
packaging/predicted_bytes.sh.

                                                              total                activations
ranks    p    d    e    m    b  policy          rank   predicted    measured   predicted    measured    reserved   overhead
END
for ranks in 1 2 4 8; do
  SPILLWAY_PREDICTED_BYTES=$table packaging/mpirun.sh $ranks "$build/tests/mpi/test_mpi" --gtest_filter='PredictedBytes.*' \
    >/dev/null
done
cp "$table" "$folder/predicted_bytes.txt"
chmod 644 "$folder/predicted_bytes.txt"
