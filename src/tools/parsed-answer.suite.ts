/** What a client puts together from the parts of an answer. */
export interface Answer {
  content: string;
  reasoning: string;
  calls: { name: string; arguments: string }[];
}

export const call = (name: string, text: string) => ({ name, arguments: text });
export const answer = (content: string, ...calls: Answer['calls']): Answer => ({ content, reasoning: '', calls });
