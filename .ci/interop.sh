#!/usr/bin/env bash
# Proves here and verifies with snarkjs, and the other way round. Needs node and npm.
#
#   .ci/interop.sh [scratch folder]
#
# The scratch folder (default: a fresh temporary one, removed at the end) keeps the installation of snarkjs. PYTHON names the interpreter.
set -euo pipefail

cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
data=examples/data
circuits=../shared/circuits

if [ $# -ge 1 ]; then
  mkdir -p "$1"
  scratch=$(cd "$1" && pwd)
else
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
fi
snarkjs=$scratch/node_modules/.bin/snarkjs
work=$scratch/interop
mkdir -p "$work"

say() { printf '== %s\n' "$*"; }

# expect <exit code> <command...>: fails unless the command ends with that code.
expect() {
  local want=$1 got=0
  shift
  "$@" || got=$?
  if [ "$got" -ne "$want" ]; then
    printf 'exit code %s, expected %s: %s\n' "$got" "$want" "$*" >&2
    exit 1
  fi
}

# prove_here <zkey> <wtns>: our proof in $work/proof.json and $work/public.json.
prove_here() {
  rm -f "$work/proof.json" "$work/public.json"
  "$python" examples/prove.py --zkey="$1" --wtns="$2" --proof="$work/proof.json" --public="$work/public.json"
}

# change_first <public.json>: prints it with the first public signal plus one.
change_first() {
  "$python" -c 'import json, sys; v = json.load(open(sys.argv[1])); print(json.dumps([str(int(v[0]) + 1)] + v[1:]))' "$1"
}

if ! [ -x "$snarkjs" ]; then
  say "install snarkjs"
  npm install --prefix "$scratch" --no-audit --no-fund snarkjs@0.7.6
fi

say "our proof, their key, their verifier"
prove_here "$data/purchase.zkey" "$data/witness.wtns"
expect 0 "$snarkjs" groth16 verify "$data/vkey.json" "$work/public.json" "$work/proof.json"
change_first "$work/public.json" > "$work/false.json"
expect 1 "$snarkjs" groth16 verify "$data/vkey.json" "$work/false.json" "$work/proof.json"

say "our key, their prover, their verifier"
rm -f "$work"/ours.zkey "$work"/ours_*.json "$work"/exported.json
"$python" examples/setup.py --r1cs="$data/purchase.r1cs" --zkey="$work/ours.zkey" --vkey="$work/ours_vkey.json"
"$snarkjs" zkey export verificationkey "$work/ours.zkey" "$work/exported.json"
"$snarkjs" groth16 prove "$work/ours.zkey" "$data/witness.wtns" "$work/ours_proof.json" "$work/ours_public.json"
for key in exported ours_vkey; do
  expect 0 "$snarkjs" groth16 verify "$work/$key.json" "$work/ours_public.json" "$work/ours_proof.json"
done

say "our key, our prover, their verifier"
prove_here "$work/ours.zkey" "$data/witness.wtns"
expect 0 "$snarkjs" groth16 verify "$work/exported.json" "$work/public.json" "$work/proof.json"

say "their proof, our verifier"
"$snarkjs" groth16 prove "$data/purchase.zkey" "$data/witness.wtns" "$work/their_proof.json" "$work/their_public.json"
expect 0 "$python" examples/verify.py --vkey="$data/vkey.json" --proof="$work/their_proof.json" --public="$work/their_public.json"
change_first "$work/their_public.json" > "$work/false.json"
expect 1 "$python" examples/verify.py --vkey="$data/vkey.json" --proof="$work/their_proof.json" --public="$work/false.json" 2> "$work/log"
if grep Traceback "$work/log"; then               # an exception, too, ends Python with 1
  cat "$work/log" >&2
  exit 1
fi

if [ -d "$circuits" ]; then
  for name in mul chain12 merkle20_poseidon sha256_64; do
    say "$name: our proof, their verifier"
    prove_here "$circuits/$name/$name.zkey" "$circuits/$name/witness.wtns"
    expect 0 "$snarkjs" groth16 verify "$circuits/$name/vkey.json" "$work/public.json" "$work/proof.json"
  done
fi
say "all agree"
