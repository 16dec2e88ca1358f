# Images of requests: included by the codec room. Sources and tests (of codec_image_test), one a line.
set(CODEC_IMAGE_SOURCES
  image/decoders.cc
  image/gif.cc
  image/jpeg.cc
  image/png.cc
  image/preprocess.cc
  image/resize.cc
  image/resolver.cc
  image/token_grid.cc
  image/webp.cc
)
set(CODEC_IMAGE_TESTS
  image/decoders_test.cc
  image/resize_test.cc
  image/resolver_test.cc
)
