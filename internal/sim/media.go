package sim

import (
	"image"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// mediaKind is "image", "video" and so on, by the name of a file.
func mediaKind(name string) string {
	kind, _, _ := strings.Cut(mimeByName(name), "/")
	return kind
}

// withMedia adds to the reference of a picture or video what the server says of its content, with
// or without assets, unless its node has said so. more are further members and their values.
func withMedia(p *process, ref *pyjson.Object, size image.Rectangle, more ...any) *pyjson.Object {
	if p.cfg.Annotate != nil {
		p.cfg.Annotate(ref)
	}
	kind := mediaKind(ref.String("filename"))
	if p.feat.mediaMetadata && !ref.Has("metadata") && (kind == "image" || kind == "video") {
		ref.Set("metadata", dict(append([]any{"kind", kind, "width", size.Dx(), "height", size.Dy()}, more...)...))
	}
	return ref
}
