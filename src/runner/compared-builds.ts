/** Instructions of ggml's builds for newer x64 CPUs (alderlake, cooperlake, sapphirerapids, zen4), which were not compared. */
const notCompared = ['AVX_VNNI', 'AVX512_BF16', 'AMX_INT8'];

/**
 * Whether ggml's build for the CPU is one of those whose operations were compared with each other (docs/numerics.md): for Linux on
 * x64, from haswell to icelake. `features`: as `backendFeatures` gives them.
 */
export function isComparedBuild(features: string, { platform, arch }: { platform: string; arch: string }): boolean {
  return (
    platform === 'linux' && arch === 'x64' && !notCompared.some((name) => features.split(' ').includes(`${name}=1`))
  );
}
