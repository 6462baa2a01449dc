"""The curve card of BLS12-381: everything follows from the parameter x and the two generators. Plain Python integers.

BLS12 curves (Barreto, Lynn, Scott 2002): r = x^4 - x^2 + 1, p = (x - 1)^2 r / 3 + x. The curve is y^2 = x^3 + 4 over Fp, the
twist y^2 = x^3 + 4(1 + u) over Fp2 = Fp[u]/(u^2 + 1). Generators and cofactors: IETF pairing-friendly-curves, section 4.2.1.
"""

X = -0xd201000000010000
R = X**4 - X**2 + 1                          # order of G1 and G2
P = (X - 1)**2 * R // 3 + X                  # characteristic of the base field
G1_COFACTOR = (X - 1)**2 // 3
G2_COFACTOR = (X**8 - 4 * X**7 + 5 * X**6 - 4 * X**4 + 6 * X**3 - 4 * X**2 - 4 * X + 13) // 9

G1_B = 4
G2_B = (4, 4)                                # 4 (1 + u)

G1_GENERATOR = (
    0x17f1d3a73197d7942695638c4fa9ac0fc3688c4f9774b905a14e3a3f171bac586c55e83ff97a1aeffb3af00adb22c6bb,
    0x08b3f481e3aaa0f1a09e30ed741d8ae4fcf5e095d5d00af600db18cb2c04b3edd03cc744a2888ae40caa232946c5e7e1,
)
G2_GENERATOR = (
    (0x024aa2b2f08f0a91260805272dc51051c6e47ad4fa403b02b4510b647ae3d1770bac0326a805bbefd48056c8c121bdb8,
     0x13e02b6052719f607dacd3a088274f65596bd0d09920b61ab5da61bbdc7f5049334cf11213945d57e5ac7d055d042b7e),
    (0x0ce5d527727d6e118cc9cdc6da2e351aadfd9baa8cbdd3a76d429a695160d12c923ac9cc3baca289e193548608b82801,
     0x0606c4a02ea734cc32acd2b02bc28b99cb3e287e85a763af267492ab572e99ab3f370d275cec1da1aaa9075ff05f79be),
)

TWO_ADICITY = 32                             # 2^32 divides r - 1 and 2^33 does not
SNARKJS_GENERATOR = 5                        # quadratic non-residue from which snarkjs derives its roots of unity
BELLMAN_GENERATOR = 7                        # multiplicative generator of bellman, arkworks and gnark


def root_of_unity(log2_size, generator):
  """generator^((r - 1) / 2^log2_size): a primitive root of order 2^log2_size for any quadratic non-residue `generator`."""
  return pow(generator, (R - 1) >> log2_size, R)
