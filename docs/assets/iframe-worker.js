// The search index is read by a worker, which browsers do not start in pages opened as files: there, a hidden frame
// runs the same script. The theme's worker looks for this name in its parent.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.ready = new Promise((resolve, reject) => {
        const inside = frame.contentWindow
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
        const script = inside.document.createElement("script")
        script.src = url
        script.onload = () => resolve(inside)
        script.onerror = reject
        inside.document.body.append(script)
      })
    }
    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })))
    }
  }
  window.IFrameWorker = window.Worker = IFrameWorker
}
