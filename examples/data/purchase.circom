pragma circom 2.1.0;

// A chain of MiMC rounds (Albrecht et al., eprint 2016/492) and a range proof, written for these tests. The round constants are small
// squares and the exponent 5 is coprime to r - 1, so a round is a permutation; this is not a vetted hash: never use it to hide anything.

// x -> (x + key + constant)^5
template Round(constant) {
  signal input x;
  signal input key;
  signal output out;
  signal square <== (x + key + constant) * (x + key + constant);
  signal fourth <== square * square;
  out <== fourth * (x + key + constant);
}

// Encrypts x under `key` with `rounds` rounds and adds the key and the input, as Miyaguchi and Preneel do.
template Compress(rounds) {
  signal input x;
  signal input key;
  signal output out;
  component round[rounds];
  for (var i = 0; i < rounds; i++) {
    round[i] = Round(i * i + 1);
    round[i].key <== key;
    round[i].x <== i == 0 ? x : round[i - 1].out;
  }
  out <== round[rounds - 1].out + 2 * key + x;
}

// 0 <= x < 2^bits
template Range(bits) {
  signal input x;
  signal bit[bits];
  var sum = 0;
  for (var i = 0; i < bits; i++) {
    bit[i] <-- (x >> i) & 1;
    bit[i] * (bit[i] - 1) === 0;
    sum += bit[i] * 2**i;
  }
  sum === x;
}

// "I know an amount below 2^64 and a secret that hash to `digest`, and amount * price = cost."
template Purchase() {
  signal input secret;
  signal input amount;
  signal input price;
  signal output digest;
  signal output cost;
  component range = Range(64);
  range.x <== amount;
  component hash = Compress(64);
  hash.x <== amount;
  hash.key <== secret;
  digest <== hash.out;
  cost <== amount * price;
}

component main {public [price]} = Purchase();
