package a1111

import (
	"bytes"
	"encoding/base64"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// ReferenceKey is the key of the object that stands for a picture in the payload of a graph:
// {"comfyhub_input": 0} is the first one of the chain at [InputImages]. Places are used and
// no names, because the hub may give a file another name at each instance.
const ReferenceKey = "comfyhub_input"

// minPicture is how long a picture in base64 is at least, and headPicture how much of it
// tells what it is: a multiple of four.
const minPicture, headPicture = 40, 32

// format is a format of pictures.
type format struct{ magic, extension, mime string }

// formatOf tells the format of a picture from its first bytes; false for anything else.
func formatOf(start []byte) (format, bool) {
	for _, f := range [...]format{
		{"\x89PNG\r\n", ".png", "image/png"}, {"\xff\xd8\xff", ".jpg", "image/jpeg"}, {"GIF8", ".gif", "image/gif"},
	} {
		if bytes.HasPrefix(start, []byte(f.magic)) {
			return f, true
		}
	}
	if len(start) >= 12 && string(start[:4]) == "RIFF" && string(start[8:12]) == "WEBP" {
		return format{extension: ".webp", mime: "image/webp"}, true
	}
	return format{}, false
}

// pictureIn returns a text that is a picture in base64, perhaps as a data: URL, without what
// is before its content.
func pictureIn(text string) (content string, f format, ok bool) {
	if strings.HasPrefix(text, "data:") {
		_, text, _ = strings.Cut(text, ",")
	}
	text = strings.TrimSpace(text)
	if len(text) < minPicture {
		return "", format{}, false
	}
	start, err := base64.StdEncoding.DecodeString(text[:headPicture])
	if err != nil {
		return "", format{}, false
	}
	f, ok = formatOf(start)
	return text, f, ok
}

// mapTexts returns a copy of a value with what change returns for each text in it.
func mapTexts(v pyjson.Value, change func(text string) pyjson.Value) pyjson.Value {
	switch v := v.(type) {
	case pyjson.String:
		return change(string(v))
	case pyjson.Array:
		list := make(pyjson.Array, len(v))
		for i, item := range v {
			list[i] = mapTexts(item, change)
		}
		return list
	case *pyjson.Object:
		o := &pyjson.Object{}
		for key, item := range v.All() {
			o.Set(key, mapTexts(item, change))
		}
		return o
	}
	return v
}

// lift takes the pictures out of a payload, wherever they are in it: extensions such as
// ControlNet have their own. The same picture is taken once.
func lift(payload *pyjson.Object) (lifted pyjson.Value, pictures []string) {
	places := map[string]int{}
	return mapTexts(payload, func(text string) pyjson.Value {
		content, f, ok := pictureIn(text)
		if !ok {
			return pyjson.String(text)
		}
		place, known := places[content]
		if !known {
			place = len(pictures)
			places[content] = place
			pictures = append(pictures, "data:"+f.mime+";base64,"+content)
		}
		return dict(ReferenceKey, pyjson.Int(int64(place)))
	}), pictures
}

// put is the reverse of lift: picture returns what stands at a place, in base64.
func put(v pyjson.Value, picture func(place int) (string, error)) (pyjson.Value, error) {
	switch v := v.(type) {
	case pyjson.Array:
		list := make(pyjson.Array, len(v))
		for i, item := range v {
			var err error
			if list[i], err = put(item, picture); err != nil {
				return nil, err
			}
		}
		return list, nil
	case *pyjson.Object:
		if n, ok := v.Get(ReferenceKey); ok && v.Len() == 1 {
			if place, ok := placeOf(n); ok {
				text, err := picture(place)
				return pyjson.String(text), err
			}
		}
		o := &pyjson.Object{}
		for key, item := range v.All() {
			put, err := put(item, picture)
			if err != nil {
				return nil, err
			}
			o.Set(key, put)
		}
		return o, nil
	}
	return v, nil
}

func placeOf(v pyjson.Value) (int, bool) {
	n, _ := v.(pyjson.Number)
	place, ok := n.Int64()
	return int(place), ok && place >= 0 && place < maxPictures
}
