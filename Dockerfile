FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /dynago ./cmd/dynago

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /dynago /dynago
# Any user but root; the number needs no passwd file.
USER 65532:65532
ENV DYN_HTTP_HOST=0.0.0.0
EXPOSE 8000
ENTRYPOINT ["/dynago"]
CMD ["serve"]
