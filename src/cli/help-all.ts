import { type Command, Help, type Option } from 'commander';

/** Commands whose help has all flags. */
const showing = new WeakSet<Command>();

/** Lets `--help` of a command show the flags that a newcomer needs, and adds `--help-all`, which shows all. */
export function showFirst(command: Command, isFirst: (option: Option) => boolean): void {
  command.option('--help-all', 'display help with all flags').on('option:help-all', () => {
    showing.add(command);
    command.help();
  });
  command.configureHelp({
    visibleOptions(asked) {
      const all = Help.prototype.visibleOptions.call(this as Help, asked);
      const isShown = (option: Option): boolean => /^--help(-all)?$/.test(option.long ?? '') || isFirst(option);
      return showing.has(asked) ? all : all.filter(isShown);
    },
  });
}

/** For `addHelpText`: a text that only `--help-all` shows. */
export const inHelpAll =
  (text: string) =>
  ({ command }: { readonly command: Command }): string =>
    showing.has(command) ? text : '';
