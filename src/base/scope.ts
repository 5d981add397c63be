/** Resources that are opened one after the other, and closed in reverse order. */

/** Something that is closed. */
export interface Closable {
  close(): unknown;
}

/** See the head of this file. */
export class Scope implements Closable {
  readonly #opened: Closable[] = [];

  /**
   * Opens resources in a new scope. When it fails half-way, those that are open are closed.
   * @throws the error of `open`; an error of a close is left out then
   */
  static async open<T>(open: (scope: Scope) => Promise<T>): Promise<T> {
    const scope = new Scope();
    try {
      return await open(scope);
    } catch (error) {
      await scope.close().catch(() => {});
      throw error;
    }
  }

  /** Adds a resource, which is closed before all that were added earlier. @returns the resource */
  add<T extends Closable>(resource: T): T {
    this.#opened.push(resource);
    return resource;
  }

  /**
   * Closes the open resources, each once. A resource that fails to close stays in the scope for the next call.
   * @throws the first error of a resource, when all were tried
   */
  async close(): Promise<void> {
    const failed: { readonly resource: Closable; readonly error: unknown }[] = [];
    for (let resource = this.#opened.pop(); resource !== undefined; resource = this.#opened.pop())
      try {
        await resource.close();
      } catch (error) {
        failed.push({ resource, error });
      }
    this.#opened.push(...failed.map(({ resource }) => resource).reverse());
    if (failed[0] !== undefined) throw failed[0].error;
  }
}
