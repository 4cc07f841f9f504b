package main

import (
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"
)

// begin answers with the id of a new upload.
func (x *xmlAPI) begin(w http.ResponseWriter, bucket, key string, header http.Header) {
	x.mu.Lock()
	x.started++
	id := fmt.Sprintf("u%d-%d", time.Now().UnixNano(), x.started)
	x.uploads[id] = &upload{bucket: bucket, object: key, begun: time.Now().UTC(), header: header.Clone(), parts: map[int]part{}}
	x.mu.Unlock()
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprintf(w, "%s<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", xml.Header, id)
}

func (x *xmlAPI) serveUpload(w http.ResponseWriter, r *http.Request, bucket, key string, query url.Values) {
	id := query.Get("uploadId")
	x.mu.Lock()
	found := x.uploads[id]
	x.mu.Unlock()
	if found == nil || found.bucket != bucket || found.object != key {
		refuse(w, 404, "NoSuchUpload")
		return
	}
	switch r.Method {
	case http.MethodPut:
		x.putPart(w, r, found, query.Get("partNumber"))
	case http.MethodPost:
		x.complete(w, r, id, found)
	case http.MethodDelete:
		x.forget(id)
		w.WriteHeader(204)
	default:
		refuse(w, 405, "MethodNotAllowed")
	}
}

func (x *xmlAPI) putPart(w http.ResponseWriter, r *http.Request, to *upload, number string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, 400, "IncompleteBody")
		return
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > 10000 {
		refuse(w, 400, "InvalidArgument")
		return
	}
	if !isIntact(r.Header, body) {
		refuse(w, 400, "BadDigest")
		return
	}
	tag := fmt.Sprintf("p%d-%08x", n, crc32.Checksum(body, castagnoli))
	x.mu.Lock()
	to.parts[n] = part{tag, body}
	x.mu.Unlock()
	w.Header().Set("ETag", quoted(tag))
	w.Header().Set("X-Goog-Hash", "crc32c="+crc32c(body))
}

// complete makes one object of the parts that the client names, or of all where it names none.
func (x *xmlAPI) complete(w http.ResponseWriter, r *http.Request, id string, of *upload) {
	if r.Header.Get("X-Goog-If-Generation-Match") != "" { // as the real one: uploads in parts know no conditions
		refuse(w, 400, "NotImplemented")
		return
	}
	body, err := io.ReadAll(r.Body)
	var asked struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if err == nil && len(body) > 0 {
		err = xml.Unmarshal(body, &asked)
	}
	if err != nil {
		refuse(w, 400, "MalformedXML")
		return
	}
	x.mu.Lock()
	var numbers []int
	for n := range of.parts {
		numbers = append(numbers, n)
	}
	sort.Ints(numbers)
	var whole []byte
	missing := false
	if len(asked.Part) > 0 {
		numbers = numbers[:0]
		for _, one := range asked.Part {
			there, ok := of.parts[one.PartNumber]
			missing = missing || !ok || there.tag != strings.Trim(one.ETag, `"`)
			numbers = append(numbers, one.PartNumber)
		}
	}
	for _, n := range numbers {
		whole = append(whole, of.parts[n].body...)
	}
	x.mu.Unlock()
	if missing {
		refuse(w, 400, "InvalidPart")
		return
	}
	if !sort.IntsAreSorted(numbers) {
		refuse(w, 400, "InvalidPartOrder")
		return
	}
	header := of.header.Clone()
	header.Del("X-Goog-Hash")
	header.Del("Content-MD5")
	if sums := r.Header.Get("X-Goog-Hash"); sums != "" {
		header.Set("X-Goog-Hash", sums)
	}
	if x.put(w, of.bucket, of.object, header, whole) {
		x.forget(id)
		tag := strings.ReplaceAll(w.Header().Get("ETag"), `"`, "&quot;")
		fmt.Fprintf(w, "%s<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>", xml.Header, tag)
	}
}

// listUploads names what was begun and neither completed nor aborted.
func (x *xmlAPI) listUploads(w http.ResponseWriter, bucket, prefix string) {
	type begun struct{ Key, UploadId, Initiated string }
	page := struct {
		XMLName     xml.Name `xml:"ListMultipartUploadsResult"`
		IsTruncated bool
		Upload      []begun
	}{}
	x.mu.Lock()
	for id, one := range x.uploads {
		if one.bucket == bucket && strings.HasPrefix(one.object, prefix) {
			page.Upload = append(page.Upload, begun{one.object, id, one.begun.Format(time.RFC3339Nano)})
		}
	}
	x.mu.Unlock()
	sort.Slice(page.Upload, func(a, b int) bool {
		one, other := page.Upload[a], page.Upload[b]
		return one.Key < other.Key || (one.Key == other.Key && one.UploadId < other.UploadId)
	})
	w.Header().Set("Content-Type", "application/xml; charset=UTF-8")
	io.WriteString(w, xml.Header)
	if err := xml.NewEncoder(w).Encode(page); err != nil {
		panic(http.ErrAbortHandler) // the beginning is sent: only a cut tells the client
	}
}

func (x *xmlAPI) forget(id string) {
	x.mu.Lock()
	delete(x.uploads, id)
	x.mu.Unlock()
}
