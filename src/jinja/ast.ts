/** The tree of a template. `line` counts from 1. */

export type Expression =
  | { readonly kind: 'constant'; readonly value: null | boolean | bigint | number | string }
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'list' | 'tuple'; readonly items: readonly Expression[] }
  | { readonly kind: 'dict'; readonly entries: readonly (readonly [key: Expression, value: Expression])[] }
  | { readonly kind: 'attribute'; readonly object: Expression; readonly name: string }
  | { readonly kind: 'item'; readonly object: Expression; readonly key: Expression }
  | { readonly kind: 'slice'; readonly object: Expression; readonly slice: Slice }
  | { readonly kind: 'call'; readonly callee: Expression; readonly args: CallArguments }
  | { readonly kind: 'filter'; readonly value: Expression; readonly name: string; readonly args: CallArguments }
  | { readonly kind: 'test'; readonly value: Expression; readonly name: string; readonly args: CallArguments }
  | { readonly kind: 'not' | 'negative' | 'positive'; readonly value: Expression }
  | { readonly kind: 'and' | 'or'; readonly left: Expression; readonly right: Expression }
  | {
      readonly kind: 'binary';
      readonly operator: BinaryOperator;
      readonly left: Expression;
      readonly right: Expression;
    }
  | { readonly kind: 'concat'; readonly parts: readonly Expression[] }
  | { readonly kind: 'compare'; readonly first: Expression; readonly rest: readonly Comparison[] }
  | ConditionalExpression;

export type BinaryOperator = '+' | '-' | '*' | '/' | '//' | '%' | '**';

export interface Slice {
  readonly start: Expression | undefined;
  readonly stop: Expression | undefined;
  readonly step: Expression | undefined;
}

export interface CallArguments {
  readonly positional: readonly Expression[];
  readonly named: readonly (readonly [name: string, value: Expression])[];
  /** `*list`. */
  readonly moreItems: Expression | undefined;
  /** `**dict`. */
  readonly moreNames: Expression | undefined;
}

export interface Comparison {
  readonly operator: '==' | '!=' | '<' | '<=' | '>' | '>=' | 'in' | 'not in';
  readonly right: Expression;
}

export interface ConditionalExpression {
  readonly kind: 'conditional';
  readonly test: Expression;
  readonly then: Expression;
  readonly otherwise: Expression | undefined;
  readonly line: number;
}

/** What is assigned to: a name, a field of a namespace, or several of them. */
export type Target =
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'field'; readonly object: string; readonly name: string }
  | { readonly kind: 'targets'; readonly targets: readonly Target[] };

export type Statement =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'print'; readonly value: Expression }
  | { readonly kind: 'set'; readonly target: Target; readonly value: Expression }
  | { readonly kind: 'set block'; readonly target: Target; readonly filter: FilterOf; readonly body: Body }
  | { readonly kind: 'if'; readonly branches: readonly Branch[]; readonly otherwise: Body }
  | ForStatement
  | { readonly kind: 'macro'; readonly name: string; readonly signature: Signature; readonly body: Body }
  | {
      readonly kind: 'call block';
      readonly call: Expression & { readonly kind: 'call' };
      readonly signature: Signature;
      readonly body: Body;
    }
  | { readonly kind: 'filter block'; readonly filter: FilterOf; readonly body: Body }
  | { readonly kind: 'with'; readonly values: readonly (readonly [Target, Expression])[]; readonly body: Body }
  | { readonly kind: 'scope'; readonly body: Body }
  | { readonly kind: 'autoescape'; readonly isOn: Expression; readonly body: Body }
  | { readonly kind: 'block'; readonly name: string; readonly isScoped: boolean; readonly body: Body }
  | { readonly kind: 'break' | 'continue' }
  /** `include`, `import`, `extends`, `from`: there are no other templates. */
  | { readonly kind: 'load' };

export type Body = readonly Statement[];

export interface ForStatement {
  readonly kind: 'for';
  readonly target: Target;
  readonly iterable: Expression;
  readonly test: Expression | undefined;
  readonly isRecursive: boolean;
  readonly body: Body;
  readonly otherwise: Body;
}

export interface Branch {
  readonly test: Expression;
  readonly body: Body;
}

export interface Signature {
  readonly names: readonly string[];
  /** Those of the last parameters. */
  readonly defaults: readonly Expression[];
}

/** Filters applied to the name `blockText`, which stands for the block's text; undefined: none. */
export type FilterOf = Expression | undefined;

/** No template can write this name. */
export const blockText = '(text)';
