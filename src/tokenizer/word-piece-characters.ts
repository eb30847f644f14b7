/**
 * Classes of characters for regular expressions, as Hugging Face's tokenizers have them for BERT.
 * `tools/word-piece/characters.py` writes this file.
 */
/** Control characters, as an old version of Unicode has them. */
export const removed = [
  String.raw`\u{0}-\u{8}\u{b}-\u{c}\u{e}-\u{1f}\u{7f}-\u{9f}\u{ad}\u{600}-\u{605}\u{61c}\u{6dd}\u{70f}\u{180e}`,
  String.raw`\u{200b}-\u{200f}\u{202a}-\u{202e}\u{2060}-\u{2064}\u{2066}-\u{206f}\u{e000}-\u{f8ff}\u{feff}`,
  String.raw`\u{fff9}-\u{fffb}\u{fffd}\u{110bd}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0001}\u{e0020}-\u{e007f}`,
  String.raw`\u{f0000}-\u{ffffd}\u{100000}-\u{10fffd}`,
].join('');
export const spaces = [
  String.raw`\u{9}-\u{a}\u{d}\u{20}\u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}-\u{2029}\u{202f}\u{205f}\u{3000}`,
].join('');
/** Each is a word. */
export const ideographs = [
  String.raw`\u{3400}-\u{4dbf}\u{4e00}-\u{9fff}\u{f900}-\u{faff}\u{20000}-\u{2a6df}\u{2a700}-\u{2b81f}`,
  String.raw`\u{2b920}-\u{2ceaf}\u{2f800}-\u{2fa1f}`,
].join('');
/** Marks that go with `strip_accents`. */
export const accents = [
  String.raw`\u{300}-\u{36f}\u{483}-\u{487}\u{591}-\u{5bd}\u{5bf}\u{5c1}-\u{5c2}\u{5c4}-\u{5c5}\u{5c7}`,
  String.raw`\u{610}-\u{61a}\u{64b}-\u{65f}\u{670}\u{6d6}-\u{6dc}\u{6df}-\u{6e4}\u{6e7}-\u{6e8}\u{6ea}-\u{6ed}`,
  String.raw`\u{711}\u{730}-\u{74a}\u{7a6}-\u{7b0}\u{7eb}-\u{7f3}\u{816}-\u{819}\u{81b}-\u{823}\u{825}-\u{827}`,
  String.raw`\u{829}-\u{82d}\u{859}-\u{85b}\u{8e3}-\u{902}\u{93a}\u{93c}\u{941}-\u{948}\u{94d}\u{951}-\u{957}`,
  String.raw`\u{962}-\u{963}\u{981}\u{9bc}\u{9c1}-\u{9c4}\u{9cd}\u{9e2}-\u{9e3}\u{a01}-\u{a02}\u{a3c}`,
  String.raw`\u{a41}-\u{a42}\u{a47}-\u{a48}\u{a4b}-\u{a4d}\u{a51}\u{a70}-\u{a71}\u{a75}\u{a81}-\u{a82}\u{abc}`,
  String.raw`\u{ac1}-\u{ac5}\u{ac7}-\u{ac8}\u{acd}\u{ae2}-\u{ae3}\u{b01}\u{b3c}\u{b3f}\u{b41}-\u{b44}\u{b4d}`,
  String.raw`\u{b56}\u{b62}-\u{b63}\u{b82}\u{bc0}\u{bcd}\u{c00}\u{c3e}-\u{c40}\u{c46}-\u{c48}\u{c4a}-\u{c4d}`,
  String.raw`\u{c55}-\u{c56}\u{c62}-\u{c63}\u{c81}\u{cbc}\u{cbf}\u{cc6}\u{ccc}-\u{ccd}\u{ce2}-\u{ce3}\u{d01}`,
  String.raw`\u{d41}-\u{d44}\u{d4d}\u{d62}-\u{d63}\u{dca}\u{dd2}-\u{dd4}\u{dd6}\u{e31}\u{e34}-\u{e3a}`,
  String.raw`\u{e47}-\u{e4e}\u{eb1}\u{eb4}-\u{eb9}\u{ebb}-\u{ebc}\u{ec8}-\u{ecd}\u{f18}-\u{f19}\u{f35}\u{f37}`,
  String.raw`\u{f39}\u{f71}-\u{f7e}\u{f80}-\u{f84}\u{f86}-\u{f87}\u{f8d}-\u{f97}\u{f99}-\u{fbc}\u{fc6}`,
  String.raw`\u{102d}-\u{1030}\u{1032}-\u{1037}\u{1039}-\u{103a}\u{103d}-\u{103e}\u{1058}-\u{1059}`,
  String.raw`\u{105e}-\u{1060}\u{1071}-\u{1074}\u{1082}\u{1085}-\u{1086}\u{108d}\u{109d}\u{135d}-\u{135f}`,
  String.raw`\u{1712}-\u{1714}\u{1732}-\u{1734}\u{1752}-\u{1753}\u{1772}-\u{1773}\u{17b4}-\u{17b5}`,
  String.raw`\u{17b7}-\u{17bd}\u{17c6}\u{17c9}-\u{17d3}\u{17dd}\u{180b}-\u{180d}\u{18a9}\u{1920}-\u{1922}`,
  String.raw`\u{1927}-\u{1928}\u{1932}\u{1939}-\u{193b}\u{1a17}-\u{1a18}\u{1a1b}\u{1a56}\u{1a58}-\u{1a5e}\u{1a60}`,
  String.raw`\u{1a62}\u{1a65}-\u{1a6c}\u{1a73}-\u{1a7c}\u{1a7f}\u{1ab0}-\u{1abd}\u{1b00}-\u{1b03}\u{1b34}`,
  String.raw`\u{1b36}-\u{1b3a}\u{1b3c}\u{1b42}\u{1b6b}-\u{1b73}\u{1b80}-\u{1b81}\u{1ba2}-\u{1ba5}`,
  String.raw`\u{1ba8}-\u{1ba9}\u{1bab}-\u{1bad}\u{1be6}\u{1be8}-\u{1be9}\u{1bed}\u{1bef}-\u{1bf1}`,
  String.raw`\u{1c2c}-\u{1c33}\u{1c36}-\u{1c37}\u{1cd0}-\u{1cd2}\u{1cd4}-\u{1ce0}\u{1ce2}-\u{1ce8}\u{1ced}`,
  String.raw`\u{1cf4}\u{1cf8}-\u{1cf9}\u{1dc0}-\u{1df5}\u{1dfc}-\u{1dff}\u{20d0}-\u{20dc}\u{20e1}`,
  String.raw`\u{20e5}-\u{20f0}\u{2cef}-\u{2cf1}\u{2d7f}\u{2de0}-\u{2dff}\u{302a}-\u{302d}\u{3099}-\u{309a}`,
  String.raw`\u{a66f}\u{a674}-\u{a67d}\u{a69e}-\u{a69f}\u{a6f0}-\u{a6f1}\u{a802}\u{a806}\u{a80b}\u{a825}-\u{a826}`,
  String.raw`\u{a8c4}\u{a8e0}-\u{a8f1}\u{a926}-\u{a92d}\u{a947}-\u{a951}\u{a980}-\u{a982}\u{a9b3}`,
  String.raw`\u{a9b6}-\u{a9b9}\u{a9bc}\u{a9e5}\u{aa29}-\u{aa2e}\u{aa31}-\u{aa32}\u{aa35}-\u{aa36}\u{aa43}\u{aa4c}`,
  String.raw`\u{aa7c}\u{aab0}\u{aab2}-\u{aab4}\u{aab7}-\u{aab8}\u{aabe}-\u{aabf}\u{aac1}\u{aaec}-\u{aaed}\u{aaf6}`,
  String.raw`\u{abe5}\u{abe8}\u{abed}\u{fb1e}\u{fe00}-\u{fe0f}\u{fe20}-\u{fe2f}\u{101fd}\u{102e0}`,
  String.raw`\u{10376}-\u{1037a}\u{10a01}-\u{10a03}\u{10a05}-\u{10a06}\u{10a0c}-\u{10a0f}\u{10a38}-\u{10a3a}`,
  String.raw`\u{10a3f}\u{10ae5}-\u{10ae6}\u{11001}\u{11038}-\u{11046}\u{1107f}-\u{11081}\u{110b3}-\u{110b6}`,
  String.raw`\u{110b9}-\u{110ba}\u{11100}-\u{11102}\u{11127}-\u{1112b}\u{1112d}-\u{11134}\u{11173}`,
  String.raw`\u{11180}-\u{11181}\u{111b6}-\u{111be}\u{111ca}-\u{111cc}\u{1122f}-\u{11231}\u{11234}`,
  String.raw`\u{11236}-\u{11237}\u{112df}\u{112e3}-\u{112ea}\u{11300}-\u{11301}\u{1133c}\u{11340}`,
  String.raw`\u{11366}-\u{1136c}\u{11370}-\u{11374}\u{114b3}-\u{114b8}\u{114ba}\u{114bf}-\u{114c0}`,
  String.raw`\u{114c2}-\u{114c3}\u{115b2}-\u{115b5}\u{115bc}-\u{115bd}\u{115bf}-\u{115c0}\u{115dc}-\u{115dd}`,
  String.raw`\u{11633}-\u{1163a}\u{1163d}\u{1163f}-\u{11640}\u{116ab}\u{116ad}\u{116b0}-\u{116b5}\u{116b7}`,
  String.raw`\u{1171d}-\u{1171f}\u{11722}-\u{11725}\u{11727}-\u{1172b}\u{16af0}-\u{16af4}\u{16b30}-\u{16b36}`,
  String.raw`\u{16f8f}-\u{16f92}\u{1bc9d}-\u{1bc9e}\u{1d167}-\u{1d169}\u{1d17b}-\u{1d182}\u{1d185}-\u{1d18b}`,
  String.raw`\u{1d1aa}-\u{1d1ad}\u{1d242}-\u{1d244}\u{1da00}-\u{1da36}\u{1da3b}-\u{1da6c}\u{1da75}\u{1da84}`,
  String.raw`\u{1da9b}-\u{1da9f}\u{1daa1}-\u{1daaf}\u{1e8d0}-\u{1e8d6}\u{e0100}-\u{e01ef}`,
].join('');
/** Each is a word. */
export const punctuation = [
  String.raw`\u{21}-\u{2f}\u{3a}-\u{40}\u{5b}-\u{60}\u{7b}-\u{7e}\u{a1}\u{a7}\u{ab}\u{b6}-\u{b7}\u{bb}\u{bf}`,
  String.raw`\u{37e}\u{387}\u{55a}-\u{55f}\u{589}-\u{58a}\u{5be}\u{5c0}\u{5c3}\u{5c6}\u{5f3}-\u{5f4}`,
  String.raw`\u{609}-\u{60a}\u{60c}-\u{60d}\u{61b}\u{61e}-\u{61f}\u{66a}-\u{66d}\u{6d4}\u{700}-\u{70d}`,
  String.raw`\u{7f7}-\u{7f9}\u{830}-\u{83e}\u{85e}\u{964}-\u{965}\u{970}\u{af0}\u{df4}\u{e4f}\u{e5a}-\u{e5b}`,
  String.raw`\u{f04}-\u{f12}\u{f14}\u{f3a}-\u{f3d}\u{f85}\u{fd0}-\u{fd4}\u{fd9}-\u{fda}\u{104a}-\u{104f}\u{10fb}`,
  String.raw`\u{1360}-\u{1368}\u{1400}\u{166d}-\u{166e}\u{169b}-\u{169c}\u{16eb}-\u{16ed}\u{1735}-\u{1736}`,
  String.raw`\u{17d4}-\u{17d6}\u{17d8}-\u{17da}\u{1800}-\u{180a}\u{1944}-\u{1945}\u{1a1e}-\u{1a1f}`,
  String.raw`\u{1aa0}-\u{1aa6}\u{1aa8}-\u{1aad}\u{1b5a}-\u{1b60}\u{1bfc}-\u{1bff}\u{1c3b}-\u{1c3f}`,
  String.raw`\u{1c7e}-\u{1c7f}\u{1cc0}-\u{1cc7}\u{1cd3}\u{2010}-\u{2027}\u{2030}-\u{2043}\u{2045}-\u{2051}`,
  String.raw`\u{2053}-\u{205e}\u{207d}-\u{207e}\u{208d}-\u{208e}\u{2308}-\u{230b}\u{2329}-\u{232a}`,
  String.raw`\u{2768}-\u{2775}\u{27c5}-\u{27c6}\u{27e6}-\u{27ef}\u{2983}-\u{2998}\u{29d8}-\u{29db}`,
  String.raw`\u{29fc}-\u{29fd}\u{2cf9}-\u{2cfc}\u{2cfe}-\u{2cff}\u{2d70}\u{2e00}-\u{2e2e}\u{2e30}-\u{2e42}`,
  String.raw`\u{3001}-\u{3003}\u{3008}-\u{3011}\u{3014}-\u{301f}\u{3030}\u{303d}\u{30a0}\u{30fb}\u{a4fe}-\u{a4ff}`,
  String.raw`\u{a60d}-\u{a60f}\u{a673}\u{a67e}\u{a6f2}-\u{a6f7}\u{a874}-\u{a877}\u{a8ce}-\u{a8cf}`,
  String.raw`\u{a8f8}-\u{a8fa}\u{a8fc}\u{a92e}-\u{a92f}\u{a95f}\u{a9c1}-\u{a9cd}\u{a9de}-\u{a9df}`,
  String.raw`\u{aa5c}-\u{aa5f}\u{aade}-\u{aadf}\u{aaf0}-\u{aaf1}\u{abeb}\u{fd3e}-\u{fd3f}\u{fe10}-\u{fe19}`,
  String.raw`\u{fe30}-\u{fe52}\u{fe54}-\u{fe61}\u{fe63}\u{fe68}\u{fe6a}-\u{fe6b}\u{ff01}-\u{ff03}`,
  String.raw`\u{ff05}-\u{ff0a}\u{ff0c}-\u{ff0f}\u{ff1a}-\u{ff1b}\u{ff1f}-\u{ff20}\u{ff3b}-\u{ff3d}\u{ff3f}`,
  String.raw`\u{ff5b}\u{ff5d}\u{ff5f}-\u{ff65}\u{10100}-\u{10102}\u{1039f}\u{103d0}\u{1056f}\u{10857}\u{1091f}`,
  String.raw`\u{1093f}\u{10a50}-\u{10a58}\u{10a7f}\u{10af0}-\u{10af6}\u{10b39}-\u{10b3f}\u{10b99}-\u{10b9c}`,
  String.raw`\u{11047}-\u{1104d}\u{110bb}-\u{110bc}\u{110be}-\u{110c1}\u{11140}-\u{11143}\u{11174}-\u{11175}`,
  String.raw`\u{111c5}-\u{111c9}\u{111cd}\u{111db}\u{111dd}-\u{111df}\u{11238}-\u{1123d}\u{112a9}\u{114c6}`,
  String.raw`\u{115c1}-\u{115d7}\u{11641}-\u{11643}\u{1173c}-\u{1173e}\u{12470}-\u{12474}\u{16a6e}-\u{16a6f}`,
  String.raw`\u{16af5}\u{16b37}-\u{16b3b}\u{16b44}\u{1bc9f}\u{1da87}-\u{1da8b}`,
].join('');
/** Newer than the tables of NFD: they are not decomposed, and begin a new sequence of marks. */
export const later = [
  String.raw`\u{7fd}\u{897}-\u{89f}\u{8ca}-\u{8d3}\u{9fe}\u{c3c}\u{d3b}-\u{d3c}\u{eba}\u{1715}\u{1abf}-\u{1add}`,
  String.raw`\u{1ae0}-\u{1aeb}\u{1df6}-\u{1dfa}\u{a82c}\u{105c9}\u{105e4}\u{10d24}-\u{10d27}\u{10d69}-\u{10d6d}`,
  String.raw`\u{10eab}-\u{10eac}\u{10efa}-\u{10efb}\u{10efd}-\u{10eff}\u{10f46}-\u{10f50}\u{10f82}-\u{10f85}`,
  String.raw`\u{11070}\u{1133b}\u{11383}\u{11385}\u{1138e}\u{11391}\u{113c5}\u{113c7}-\u{113c8}`,
  String.raw`\u{113ce}-\u{113d0}\u{1145e}\u{11839}-\u{1183a}\u{11938}\u{1193d}-\u{1193e}\u{11943}\u{119e0}`,
  String.raw`\u{11a34}\u{11a47}\u{11a99}\u{11d42}\u{11d44}-\u{11d45}\u{11d97}\u{11f41}-\u{11f42}`,
  String.raw`\u{16121}-\u{16128}\u{1612f}\u{16d68}-\u{16d6a}\u{16ff0}-\u{16ff1}\u{1e08f}\u{1e130}-\u{1e136}`,
  String.raw`\u{1e2ae}\u{1e2ec}-\u{1e2ef}\u{1e4ec}-\u{1e4ef}\u{1e5ee}-\u{1e5ef}\u{1e6e3}\u{1e6e6}`,
  String.raw`\u{1e6ee}-\u{1e6ef}\u{1e6f5}`,
].join('');
