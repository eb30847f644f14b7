import type { PlacedMatrix } from '../weight-store.ts';
import { findExactExperts } from './exact-experts.ts';
import { type ExactKernels, findExactRowRule, type MatmulProbe } from './exact-row-rule.ts';
import type { RowMatmul } from './row-matmul.ts';

interface OtherMatrices {
  readonly matrices: readonly PlacedMatrix[];
  readonly experts: readonly PlacedMatrix[];
  readonly rowMatmul: RowMatmul | undefined;
}

/** How ggml multiplies by the matrices for which Kvasir has no kernel, so that a row has the same bits in any batch. @throws exactUnavailable */
export async function findExactKernels(
  probe: MatmulProbe,
  { matrices, experts, rowMatmul }: OtherMatrices,
): Promise<ExactKernels> {
  const kernels = await findExactRowRule(probe, matrices, rowMatmul);
  const byToken = await findExactExperts(probe, experts);
  return byToken.length === 0 ? kernels : { ...kernels, byRow: new Set([...(kernels.byRow ?? []), ...byToken]) };
}
