/** Wine 8 does not connect a socket whose keep-alive was set before, as Node's `fetch` does. Windows does. So it is set afterwards. */
import { Socket } from 'node:net';

const { setKeepAlive } = Socket.prototype;
Socket.prototype.setKeepAlive = function (...settings) {
  if (!this.connecting) return setKeepAlive.apply(this, settings);
  return this.once('connect', () => setKeepAlive.apply(this, settings));
};
