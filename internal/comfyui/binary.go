package comfyui

import (
	"encoding/binary"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// The events of binary frames.
const (
	// EventPreview is an image: format, bytes.
	EventPreview uint32 = 1
	// EventText is a text of a node.
	EventText uint32 = 3
	// EventPreviewMetadata is an image with a JSON object that says what it
	// belongs to. Servers send it to sockets that asked for it.
	EventPreviewMetadata uint32 = 4
)

// The image formats of EventPreview.
const (
	FormatJPEG uint32 = 1
	FormatPNG  uint32 = 2
)

// Binary is a binary frame taken apart. Its slices are parts of the frame.
type Binary struct {
	Event uint32
	// Format of the image, 0 when there is none or its type is unknown.
	Format uint32
	// Image is the picture, or the payload of an unknown event.
	Image []byte
	// Metadata is the raw JSON of EventPreviewMetadata.
	Metadata []byte
	// PromptID and Node are from the metadata; Node also from EventText.
	PromptID, Node string
	// Text is of EventText.
	Text []byte
}

// ParseBinary reads a binary frame. It reports false for frames that are too
// short for what they announce; unknown events are fine.
func ParseBinary(frame []byte) (Binary, bool) {
	if len(frame) < 4 {
		return Binary{}, false
	}
	b := Binary{Event: binary.BigEndian.Uint32(frame), Image: frame[4:]}
	switch b.Event {
	case EventPreview:
		if len(frame) < 8 {
			return Binary{}, false
		}
		b.Format, b.Image = binary.BigEndian.Uint32(frame[4:]), frame[8:]
	case EventText:
		node, rest, ok := prefixed(frame[4:])
		if !ok {
			return Binary{}, false
		}
		b.Node, b.Text, b.Image = string(node), rest, nil
	case EventPreviewMetadata:
		var ok bool
		if b.Metadata, b.Image, ok = prefixed(frame[4:]); !ok {
			return Binary{}, false
		}
		pyjson.Members(b.Metadata, func(key string, value []byte) {
			switch key {
			case "prompt_id":
				b.PromptID = pyjson.Unquote(value)
			case "node_id":
				b.Node = pyjson.Unquote(value)
			case "image_type":
				b.Format = formatOf(pyjson.Unquote(value))
			}
		})
	}
	return b, true
}

// prefixed splits data behind a part whose length stands before it.
func prefixed(data []byte) (part, rest []byte, ok bool) {
	if len(data) < 4 {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint32(data)
	if uint64(n) > uint64(len(data)-4) {
		return nil, nil, false
	}
	return data[4 : 4+n : 4+n], data[4+n:], true
}

func formatOf(mime string) uint32 {
	switch mime {
	case "image/jpeg":
		return FormatJPEG
	case "image/png":
		return FormatPNG
	}
	return 0
}

// NewPreviewMetadata writes an EventPreviewMetadata frame; metadata is raw JSON.
func NewPreviewMetadata(metadata, image []byte) []byte {
	frame := make([]byte, 8, 8+len(metadata)+len(image))
	binary.BigEndian.PutUint32(frame, EventPreviewMetadata)
	binary.BigEndian.PutUint32(frame[4:], uint32(len(metadata)))
	frame = append(frame, metadata...)
	return append(frame, image...)
}

// NodeText is a frame of EventText, which web UIs show below a node.
func NodeText(node, text string) []byte {
	frame := binary.BigEndian.AppendUint32(nil, EventText)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(node)))
	return append(append(frame, node...), text...)
}
