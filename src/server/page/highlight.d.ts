declare const highlighter: {
  getLanguage(name: string): object | undefined;
  highlight(text: string, options: { language: string; ignoreIllegals: boolean }): { value: string };
};
export default highlighter;
