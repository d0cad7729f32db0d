package workflow

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"io"
	"strings"
	"unicode/utf16"
)

const (
	// maxEmbedded bounds the texts that are read from a picture, in bytes. A workflow with
	// hundreds of nodes has some hundred thousand.
	maxEmbedded = 2 << 20
	// maxChunks bounds the parts of a file that are looked at.
	maxChunks = 10_000
)

// embedded returns the texts that the file of a picture carries, by name: the text chunks of
// a PNG, and of the EXIF data of a JPEG or WebP what ComfyUI and A1111 write there. A damaged
// file has those before the damage.
func embedded(r io.Reader) map[string]string {
	e := &embeddedTexts{in: bufio.NewReader(r), texts: map[string]string{}}
	head, _ := e.in.Peek(12)
	switch {
	case bytes.HasPrefix(head, []byte("\x89PNG\r\n\x1a\n")):
		_, _ = e.in.Discard(8)
		e.png()
	case bytes.HasPrefix(head, []byte{0xFF, 0xD8}):
		_, _ = e.in.Discard(2)
		e.jpeg()
	case len(head) == 12 && bytes.HasPrefix(head, []byte("RIFF")) && string(head[8:]) == "WEBP":
		_, _ = e.in.Discard(12)
		e.webp()
	}
	return e.texts
}

type embeddedTexts struct {
	in    *bufio.Reader
	left  int // of maxEmbedded that is used up
	texts map[string]string
}

// take reads a part of the file, and returns nil if it is too large or cut off.
func (e *embeddedTexts) take(length int64) []byte {
	if length < 0 || length > int64(maxEmbedded-e.left) {
		return nil
	}
	e.left += int(length)
	data := make([]byte, length)
	if _, err := io.ReadFull(e.in, data); err != nil {
		return nil
	}
	return data
}

func (e *embeddedTexts) skip(length int64) bool {
	_, err := io.CopyN(io.Discard, e.in, length)
	return err == nil
}

func (e *embeddedTexts) png() {
	for range maxChunks {
		var head [8]byte
		if _, err := io.ReadFull(e.in, head[:]); err != nil {
			return
		}
		length, kind := int64(binary.BigEndian.Uint32(head[:4])), string(head[4:])
		if kind != "tEXt" && kind != "zTXt" && kind != "iTXt" {
			if kind == "IEND" || !e.skip(length+4) {
				return
			}
			continue
		}
		data := e.take(length)
		if data == nil || !e.skip(4) {
			return
		}
		name, rest, ok := bytes.Cut(data, []byte{0})
		if !ok {
			continue
		}
		switch kind {
		case "tEXt":
			e.texts[string(name)] = latin1(rest)
		case "zTXt":
			if len(rest) > 0 {
				e.texts[string(name)] = latin1(e.inflate(rest[1:]))
			}
		case "iTXt":
			if len(rest) < 2 {
				continue
			}
			packed := rest[0] == 1
			if parts := bytes.SplitN(rest[2:], []byte{0}, 3); len(parts) == 3 {
				text := parts[2]
				if packed {
					text = e.inflate(text)
				}
				e.texts[string(name)] = strings.ToValidUTF8(string(text), "")
			}
		}
	}
}

// inflate unpacks a text, as much of it as may be read.
func (e *embeddedTexts) inflate(packed []byte) []byte {
	z, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil
	}
	data, _ := io.ReadAll(io.LimitReader(z, int64(maxEmbedded-e.left)))
	e.left += len(data)
	return data
}

func latin1(data []byte) string {
	runes := make([]rune, len(data))
	for i, b := range data {
		runes[i] = rune(b)
	}
	return string(runes)
}

func (e *embeddedTexts) jpeg() {
	for range maxChunks {
		var head [4]byte
		if _, err := io.ReadFull(e.in, head[:]); err != nil || head[0] != 0xFF || head[1] == 0xDA {
			return // the picture itself follows
		}
		length := int64(binary.BigEndian.Uint16(head[2:])) - 2
		if head[1] != 0xE1 {
			if length < 0 || !e.skip(length) {
				return
			}
			continue
		}
		data := e.take(length)
		if data == nil {
			return
		}
		if exif, ok := bytes.CutPrefix(data, []byte("Exif\x00\x00")); ok {
			e.exif(exif)
		}
	}
}

func (e *embeddedTexts) webp() {
	for range maxChunks {
		var head [8]byte
		if _, err := io.ReadFull(e.in, head[:]); err != nil {
			return
		}
		length := int64(binary.LittleEndian.Uint32(head[4:]))
		if string(head[:4]) != "EXIF" {
			if !e.skip(length + length%2) {
				return
			}
			continue
		}
		data := e.take(length)
		if data == nil {
			return
		}
		e.exif(bytes.TrimPrefix(data, []byte("Exif\x00\x00")))
	}
}

// The tags of EXIF data that may have a text about how a picture was made.
const (
	tagMake        = 0x010F // ComfyUI counts down from Model: "prompt:{...}", "workflow:{...}"
	tagModel       = 0x0110
	tagDescription = 0x010E
	tagExif        = 0x8769 // where further tags are
	tagComment     = 0x9286
)

// exif reads the tags of a TIFF structure.
func (e *embeddedTexts) exif(data []byte) {
	var order binary.ByteOrder = binary.LittleEndian
	switch {
	case len(data) < 8:
		return
	case bytes.HasPrefix(data, []byte("MM")):
		order = binary.BigEndian
	case !bytes.HasPrefix(data, []byte("II")):
		return
	}
	at := order.Uint32(data[4:])
	for range 2 { // the tags, and the further ones
		at = e.tags(data, at, order)
		if at == 0 {
			return
		}
	}
}

// tags reads one list of tags and returns where the further ones are, 0 if there are none.
func (e *embeddedTexts) tags(data []byte, at uint32, order binary.ByteOrder) (further uint32) {
	if int64(at)+2 > int64(len(data)) {
		return 0
	}
	list := data[at+2:]
	for range order.Uint16(data[at:]) {
		if len(list) < 12 {
			return further
		}
		tag, size, value := order.Uint16(list), order.Uint32(list[4:]), order.Uint32(list[8:])
		text := list[8:12]
		list = list[12:]
		if tag == tagExif {
			further = value
			continue
		}
		if size > 4 {
			// Thousands of tags may all have the same text, so each counts.
			if int64(value)+int64(size) > int64(len(data)) || int64(size) > int64(maxEmbedded-e.left) {
				continue
			}
			e.left += int(size)
			text = data[value : value+size]
		}
		switch tag {
		case tagComment:
			e.texts["parameters"] = comment(text, order)
		case tagMake, tagModel, tagDescription:
			plain := strings.ToValidUTF8(strings.TrimRight(string(text), "\x00"), "")
			if name, doc, ok := strings.Cut(plain, ":"); ok && (name == "prompt" || name == "workflow") {
				e.texts[name] = doc
			}
		}
	}
	return further
}

// comment reads a user comment: eight bytes for the character set, and the text.
func comment(data []byte, order binary.ByteOrder) string {
	if len(data) < 8 {
		return ""
	}
	set, text := string(data[:8]), data[8:]
	if !strings.HasPrefix(set, "UNICODE") {
		return strings.ToValidUTF8(strings.Trim(string(text), "\x00 "), "")
	}
	if len(text) > 1 && (text[0] == 0) != (text[1] == 0) { // programs do not agree on the order
		if order = binary.BigEndian; text[1] == 0 {
			order = binary.LittleEndian
		}
	}
	units := make([]uint16, len(text)/2)
	for i := range units {
		units[i] = order.Uint16(text[2*i:])
	}
	return strings.Trim(string(utf16.Decode(units)), "\x00 ")
}
