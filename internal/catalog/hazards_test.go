package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each of these graphs was accepted by a real server, whose worker then died.
func TestHazards(t *testing.T) {
	t.Parallel()
	const good = `"1":{"class_type":"EmptyImage","inputs":{"width":64,"height":64,"batch_size":1,"color":0}}`
	for _, v := range []release{older, newer} {
		cat := fleet(info(t, v))

		verdict := validate(t, cat, v, image(good+`,"2":{"class_type":"ImageInvert" }`))
		require.True(t, verdict.Accepted())
		require.Equal(t, image(good+`,"2":{"class_type":"ImageInvert" , "inputs": {}}`), string(verdict.Graph.Bytes()),
			"a node that nothing needs gets empty inputs")

		verdict = validate(t, cat, v, image(good+`,"2":{"inputs":null,"class_type":"ImageInvert"}`))
		if v == newer {
			require.Equal(t, 500, verdict.Answer.Status)
		} else {
			require.True(t, verdict.Accepted())
			require.Equal(t, image(good+`,"2":{"inputs":{},"class_type":"ImageInvert"}`), string(verdict.Graph.Bytes()))
		}

		verdict = validate(t, cat, v, `{`+good+`,"9":{"class_type":"SaveImage","inputs":{"images":["1",0],"filename_prefix":"t","other":["99",0]}}}`)
		require.Equal(t, "Exception when validating node: '99'", verdict.Error.String("details"), "an undeclared link to nowhere")
		require.Equal(t, "exception_during_validation", kinds(verdict, "9"))

		verdict = validate(t, cat, v, image(good[:len(good)-2]+`,"other":["99",0]}}`))
		require.False(t, verdict.Accepted(), "the same, upstream of the output")

		verdict = validate(t, cat, v, image(`"1":{"class_type":"ImageInvert","inputs":{"image":["2",0]}},"2":{"class_type":"ImageInvert","inputs":{"image":["3",0]}},`+
			`"3"`+good[3:len(good)-2]+`,"other":["99",true]}}`))
		require.False(t, verdict.Accepted(), "the same, far upstream")

		verdict = validate(t, cat, v, image(good+`,"2":{"class_type":"ImageInvert","inputs":{"image":["99",0]}}`))
		require.True(t, verdict.Accepted(), "nothing follows the links of a node that nothing needs")

		verdict = validate(t, cat, v, `{`+good+`,"5":{"class_type":"PreviewImage","inputs":{"images":["1",0]}},`+
			`"9":{"class_type":"SaveImage","inputs":{"images":["1",0],"filename_prefix":"t","other":["99",0]}}}`)
		require.True(t, verdict.Accepted())
		require.Equal(t, []string{"5"}, verdict.Outputs, "the good output runs")
		require.Equal(t, "exception_during_validation", kinds(verdict, "9"))

		verdict = validate(t, cat, v, `{`+good+`,"2":{"class_type":"ImageInvert"},`+
			`"9":{"class_type":"SaveImage","inputs":{"images":["1",0],"filename_prefix":"t","other":["2",0]}}}`)
		require.True(t, verdict.Accepted())
		requireHarmless(t, verdict)
	}
}

// A prompt of an API client has no _meta, at which the step that replaces old
// classes throws.
func TestReplacedClass(t *testing.T) {
	t.Parallel()
	cat := fleet(info(t, newer))
	graph := image(`"1":{"class_type":"EmptyImage","inputs":{"width":64,"height":64,"batch_size":1,"color":0}},"2":{"class_type":"SDV_img2vid_Conditioning","inputs":{}}`)
	verdict := validate(t, cat, newer, graph)
	require.True(t, verdict.Accepted())
	require.Contains(t, string(verdict.Graph.Bytes()), `"inputs":{}, "_meta": {"title": "SDV_img2vid_Conditioning"}}`)
	r := cat.Requirements(verdict.Graph, verdict.Outputs, nil)
	require.Empty(t, info(t, newer).Satisfies(r))

	verdict = validate(t, cat, newer, image(`"1":{"class_type":"Load3DAnimation","inputs":{"x":["2",0]},"_meta":{"title":"A"}},"2":{"class_type":"EmptyImage","inputs":{}}`))
	require.Equal(t, "required_input_missing required_input_missing required_input_missing required_input_missing", kinds(verdict, "2"),
		"what a replaced node links to is checked")
	verdict = validate(t, cat, newer, image(`"1":{"class_type":"Load3DAnimation","inputs":{"x":["99",0]},"_meta":{"title":"A"}}`))
	require.Equal(t, "exception_during_inner_validation", kinds(verdict, "1"))

	plain := parseInfo(t, string(infoBody(t, newer)))
	require.Equal(t, []string{"node class SDV_img2vid_Conditioning"}, plain.Satisfies(r), "an instance that does not replace it")
	require.False(t, validate(t, fleet(plain), newer, graph).Accepted())
	require.False(t, validate(t, cat, "0.13.0", graph).Accepted(), "older servers do not replace")
}
