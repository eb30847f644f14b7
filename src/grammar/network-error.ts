export type NetworkProblem =
  | { readonly kind: 'tooLarge'; readonly limit: number }
  | { readonly kind: 'unknownRule' | 'leftRecursion'; readonly rule: string }
  | { readonly kind: 'matchesNothing' };

export class NetworkError extends Error {
  readonly problem: NetworkProblem;

  constructor(problem: NetworkProblem) {
    super(problem.kind);
    this.problem = problem;
  }
}
